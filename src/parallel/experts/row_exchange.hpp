#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "ops/grouped.hpp"
#include "parallel/experts/expert_group.hpp"

namespace trireme::parallel {

/// Rows in transit between ranks. Call wait() at once or after other work.
class PendingRows {
 public:
  /// Returns the received rows in the receiver's order. Call it once.
  [[nodiscard]] at::Tensor wait();

 private:
  friend class RowExchange;
  at::Tensor sent_;
  at::Tensor received_;
  at::Tensor order_;  // order of the received rows; undefined: order of arrival
  comm::WorkPtr work_;
};

/// Exchanges the rows of one layer and micro-batch: each row goes to the rank that holds its
/// expert, and the result goes back to the rank of the row. All ranks of the group make the same
/// calls in the same order; a rank may have no rows.
class RowExchange {
 public:
  /// Collective over the group. `bounds` [E + 1], int64 on the device: expert e has this rank's
  /// rows bounds[e] to bounds[e + 1] - 1. If the group has several ranks, waits for the device once, to
  /// read the numbers of rows to send and to receive. send() and give_back() use the same numbers.
  RowExchange(const ExpertGroup& group, const at::Tensor& bounds);

  /// Returns true if rows are exchanged with other ranks.
  [[nodiscard]] bool moves() const { return group_ != nullptr; }

  /// Returns the bounds of each local expert in the received rows. On a single rank they are on the
  /// device only.
  [[nodiscard]] const ops::ExpertBounds& bounds() const { return bounds_; }

  /// Sends rows [M, ..] that are sorted by expert. Receives the rows of bounds(), sorted by expert
  /// and then by the sender's rank.
  [[nodiscard]] PendingRows send(const at::Tensor& rows, std::string_view tag) const;
  /// Sends results back to the ranks of their rows.
  [[nodiscard]] PendingRows give_back(const at::Tensor& rows, std::string_view tag) const;

 private:
  comm::Communicator* group_ = nullptr;
  ops::ExpertBounds bounds_;
  std::vector<std::uint64_t> sent_;  // rows, by rank
  std::vector<std::uint64_t> received_;
  // [received rows]: entry i is the position, in the order of arrival, of row i in expert order
  at::Tensor order_;
};

/// The route of one layer for a micro-batch: its sorted rows and their destinations.
struct Route {
  at::Tensor order;  // [M] int64: assignment of each row, see ops::ExpertRows
  RowExchange exchange;
};

/// Keeps the routes of a micro-batch's forward pass. Activation checkpointing runs forward again in
/// backward, and then takes the routes from here instead of waiting for the numbers of rows.
class RouteMemo {
 public:
  [[nodiscard]] std::shared_ptr<const Route> take(std::int64_t layer);
  void keep(std::int64_t layer, std::shared_ptr<const Route> route);

 private:
  std::map<std::int64_t, std::shared_ptr<const Route>> routes_;
};

}  // namespace trireme::parallel
