#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "comm/communicator.hpp"

namespace trireme::train {

/// One small all-reduce per step. It is posted before the step and read after it, so that no rank
/// waits. All ranks stop or save after the same step although only one has the request. All commit
/// a checkpoint once every writer is done. All learn the sum of the traces of the previous step.
class StepVote {
 public:
  struct Vote {
    bool stop = false;
    bool save = false;
    bool writer_done = false;  // true if this rank's checkpoint writer has ended
    std::uint64_t trace = 0;
  };

  struct Result {
    bool stop = false;          // true if a rank has a stop request
    bool save = false;          // true if a rank has a save request
    bool writers_done = false;  // true if the checkpoint writers of all ranks have ended
    std::uint64_t trace = 0;    // sum over all ranks, modulo 2^64
  };

  explicit StepVote(comm::Communicator& world) : world_(world) {}

  void post(const Vote& vote) {
    sums_ = {vote.stop ? 1U : 0U, vote.save ? 1U : 0U, vote.writer_done ? 0U : 1U, vote.trace};
    work_ = world_.all_reduce({.input = sums_.data(),
                               .output = sums_.data(),
                               .count = sums_.size(),
                               .dtype = DType::u64,
                               .op = comm::ReduceOp::sum,
                               .tag = "stop vote"});
  }

  /// Lets the reduction progress. Call it now and then between post() and take().
  void advance() {
    if (work_) work_->poll();
  }

  Result take() {
    work_->wait();
    work_.reset();
    return {sums_[0] != 0, sums_[1] != 0, sums_[2] == 0, sums_[3]};
  }

 private:
  comm::Communicator& world_;
  std::array<std::uint64_t, 4> sums_{};
  comm::WorkPtr work_;
};

/// Lets all ranks cancel the same update or validation before the same work item (a micro-batch or
/// a validation batch). All ranks have the same number of items.
///
/// A vote is posted before one item and read about a second later, before another item, so that no
/// rank waits. Shorter updates have no vote.
class CancelVote {
 public:
  /// `requested` returns true if this rank has a stop request.
  CancelVote(comm::Communicator& world, std::function<bool()> requested)
      : vote_(world), requested_(std::move(requested)) {}

  /// Sets the time of one item, which must be equal on all ranks. Without a call, every item has a
  /// vote.
  void set_item_time(double seconds) {
    every_ = seconds > 0 ? std::clamp(static_cast<std::int64_t>(kBetween_s / seconds),
                                      std::int64_t{1}, kMaxItems)
                         : 1;
  }

  /// Returns true if the work must be cancelled before item `i` of `n`. All ranks call it for each
  /// item from 0 on, and all get the same result.
  [[nodiscard]] bool before(std::int64_t i, std::int64_t n) {
    if (i % every_ != 0) {
      vote_.advance();
      return false;
    }
    if (i > 0 && vote_.take().stop) return true;
    if (i + every_ < n) vote_.post({.stop = requested_()});  // a later item reads it
    return false;
  }

 private:
  static constexpr double kBetween_s = 1;
  static constexpr std::int64_t kMaxItems = 1'000'000;

  StepVote vote_;
  std::function<bool()> requested_;
  std::int64_t every_ = 1;
};

}  // namespace trireme::train
