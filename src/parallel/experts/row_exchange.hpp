#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "parallel/experts/expert_group.hpp"

namespace trireme::parallel {

/// Rows in transit between ranks. Call wait() at once or after other work.
class MovingRows {
 public:
  /// Returns the received rows in the receiver's order. Call it once.
  [[nodiscard]] at::Tensor wait();

 private:
  friend class RowExchange;
  at::Tensor sent_;
  at::Tensor received_;
  at::Tensor order_;  // order of the received rows; undefined: as received
  comm::WorkPtr work_;
};

/// The destination of the rows of one micro-batch and layer: each row goes to the rank that holds
/// its expert, and its result goes back. All ranks of the group make the same calls in the same
/// order; a rank may have no rows.
class RowExchange {
 public:
  /// Collective over the group. `bounds` [E + 1] int64 on the device gives this rank's rows by
  /// expert. Waits once for the device, for the counts of both sides.
  RowExchange(const ExpertGroup& group, const at::Tensor& bounds);

  /// Returns true if rows are exchanged with other ranks.
  [[nodiscard]] bool moves() const { return group_ != nullptr; }

  /// Returns the bounds of each local expert in the rows on this rank, from 0 to their number.
  [[nodiscard]] const std::vector<std::int64_t>& bounds() const { return bounds_; }

  /// Sends rows [M, ..], sorted by expert. Receives [bounds().back(), ..] by expert; rows of one
  /// expert are ordered by the sender's rank.
  [[nodiscard]] MovingRows send(const at::Tensor& rows, std::string_view tag) const;
  /// Sends results back to the ranks of their rows.
  [[nodiscard]] MovingRows give_back(const at::Tensor& rows, std::string_view tag) const;

 private:
  comm::Communicator* group_ = nullptr;
  std::vector<std::int64_t> bounds_;
  std::vector<std::uint64_t> sent_;  // rows, by rank
  std::vector<std::uint64_t> received_;
  // [received rows]: position of each row in the order of arrival, sorted by expert
  at::Tensor order_;
};

/// The route of one layer for a micro-batch: its sorted rows and their destinations.
struct Route {
  at::Tensor order;  // [M] int64: assignment of each row, see ops::ExpertRows
  RowExchange exchange;
};

/// Keeps the routes of a micro-batch's first forward pass for its recomputation in backward, which
/// then does not wait for counts.
class RouteMemo {
 public:
  [[nodiscard]] std::shared_ptr<const Route> take(std::int64_t layer);
  void keep(std::int64_t layer, std::shared_ptr<const Route> route);

 private:
  std::map<std::int64_t, std::shared_ptr<const Route>> routes_;
};

}  // namespace trireme::parallel
