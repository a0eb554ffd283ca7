#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "parallel/experts/expert_group.hpp"

namespace trireme {

/// Rows that are on their way between ranks; wait() at once or after other work.
class MovingRows {
 public:
  /// What has arrived, in the receiver's order. Once.
  [[nodiscard]] at::Tensor wait();

 private:
  friend class RowExchange;
  at::Tensor sent_;
  at::Tensor received_;
  at::Tensor order_;  // of what is received; undefined: as it comes
  WorkPtr work_;
};

/// Where the rows of one micro-batch and layer go: each to the rank that holds its expert, and what is
/// made of it there back to where it came from. All ranks of the group make the same calls in the same
/// order; rows may be none.
class RowExchange {
 public:
  /// `bounds` [E + 1] int64 on the device: this rank's rows by expert. Collective over the group. Waits
  /// for the device once, for the counts of both sides.
  RowExchange(const ExpertGroup& group, const at::Tensor& bounds);

  /// Rows leave this rank, and others come.
  [[nodiscard]] bool moves() const { return group_ != nullptr; }

  /// Of the rows that lie here, those of each expert here: 0 .. all.
  [[nodiscard]] const std::vector<std::int64_t>& bounds() const { return bounds_; }

  /// rows [M, ..] by expert -> [bounds().back(), ..] by expert, of one expert by the sender's rank.
  [[nodiscard]] MovingRows send(const at::Tensor& rows, std::string_view tag) const;
  /// The way back.
  [[nodiscard]] MovingRows give_back(const at::Tensor& rows, std::string_view tag) const;

 private:
  Communicator* group_ = nullptr;
  std::vector<std::int64_t> bounds_;
  std::vector<std::uint64_t> sent_;  // rows, by rank
  std::vector<std::uint64_t> received_;
  at::Tensor order_;  // [rows here]: of each row by expert its place as they arrive
};

/// A layer's routes of a micro-batch: its rows in order, and where they go.
struct Route {
  at::Tensor order;  // [M] int64: assignment of each row, ops::ExpertRows
  RowExchange exchange;
};

/// Routes of a micro-batch from its first forward pass to a second one in backward, which finds them
/// and waits for nothing.
class RouteMemo {
 public:
  [[nodiscard]] std::shared_ptr<const Route> take(std::int64_t layer);
  void keep(std::int64_t layer, std::shared_ptr<const Route> route);

 private:
  std::map<std::int64_t, std::shared_ptr<const Route>> routes_;
};

}  // namespace trireme
