#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "core/error.hpp"

namespace trireme::train {

/// Numbers that StepVote::take() replaces by their sums and maxima over all ranks. The lists must
/// live until then and have equal sizes on all ranks.
struct CarriedNumbers {
  std::span<double> sums{};
  std::span<double> maxima{};
};

/// The small reduction of a step. It is posted before the step and read after it, so that no rank
/// waits. All ranks stop or save after the same step although only one has the request. All commit
/// a checkpoint once every writer is done. All learn the sum of the traces of the previous step.
///
/// Numbers of another component travel with the vote. They are added in rank order in
/// fp64, so a sum has the same bits as a sum over gathered values. Neither the message of a rank
/// nor the result grows with the number of ranks.
class StepVote {
 public:
  struct Vote {
    bool stop = false;
    bool save = false;
    bool profile = false;
    bool writer_done = false;  // true if this rank's checkpoint writer has ended
    std::uint64_t trace = 0;
  };

  struct Result {
    bool stop = false;          // true if a rank has a stop request
    bool save = false;          // true if a rank has a save request
    bool profile = false;       // true if a rank has a request for a profile
    bool writers_done = false;  // true if the checkpoint writers of all ranks have ended
    std::uint64_t trace = 0;    // sum over all ranks, modulo 2^64
  };

  explicit StepVote(comm::Communicator& world) : world_(world) {}

  void post(const Vote& vote, const CarriedNumbers& carried = {}) {
    TRIREME_ASSERT(!is_posted());
    sums_ = {vote.stop ? 1.0 : 0.0, vote.save ? 1.0 : 0.0, vote.profile ? 1.0 : 0.0,
             vote.writer_done ? 0.0 : 1.0};
    for (int part = 0; part < kTraceParts; ++part)
      sums_.push_back(static_cast<double>(vote.trace >> (kPartBits * part) & kPartMask));
    sums_.insert(sums_.end(), carried.sums.begin(), carried.sums.end());
    carried_ = carried;
    works_.push_back(start(sums_, comm::ReduceOp::sum, "step vote"));
    if (!carried.maxima.empty())
      works_.push_back(start(carried.maxima, comm::ReduceOp::max, "step maxima"));
  }

  /// Returns true between post() and take().
  [[nodiscard]] bool is_posted() const { return !works_.empty(); }

  /// Lets the reduction progress. Call it now and then between post() and take().
  void advance() {
    for (const comm::WorkPtr& work : works_) work->poll();
  }

  Result take() {
    for (const comm::WorkPtr& work : works_) work->wait();
    works_.clear();
    std::copy(sums_.begin() + kVotes + kTraceParts, sums_.end(), carried_.sums.begin());
    std::uint64_t trace = 0;
    for (int part = 0; part < kTraceParts; ++part)
      trace += static_cast<std::uint64_t>(sums_[static_cast<std::size_t>(kVotes + part)])
               << (kPartBits * part);
    return {sums_[0] != 0, sums_[1] != 0, sums_[2] != 0, sums_[3] == 0, trace};
  }

 private:
  // A double holds the sum of 2^37 parts of 16 bits exactly.
  static constexpr int kVotes = 4;
  static constexpr int kTraceParts = 4;
  static constexpr int kPartBits = 16;
  static constexpr std::uint64_t kPartMask = 0xffff;

  comm::WorkPtr start(std::span<double> numbers, comm::ReduceOp op, const char* tag) {
    return world_.all_reduce({.input = numbers.data(),
                              .output = numbers.data(),
                              .count = numbers.size(),
                              .dtype = DType::f64,
                              .op = op,
                              .tag = tag});
  }

  comm::Communicator& world_;
  std::vector<double> sums_;
  CarriedNumbers carried_;
  std::vector<comm::WorkPtr> works_;
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
  /// `stride`-th item from 0 on, and all get the same result.
  [[nodiscard]] bool before(std::int64_t i, std::int64_t n, std::int64_t stride = 1) {
    const std::int64_t every = (every_ + stride - 1) / stride * stride;
    if (i % every != 0) {
      vote_.advance();
      return false;
    }
    if (i > 0 && vote_.take().stop) return true;
    if (i + every < n) vote_.post({.stop = requested_()});  // a later item reads it
    return false;
  }

  /// Returns true if all `n` items must be cancelled. For an update of a pipeline, where ranks do
  /// different items at one time. Ranks wait for each other, but short work has no vote.
  [[nodiscard]] bool before_all(std::int64_t n) {
    if (n <= every_) return false;
    vote_.post({.stop = requested_()});
    return vote_.take().stop;
  }

 private:
  static constexpr double kBetween_s = 1;
  static constexpr std::int64_t kMaxItems = 1'000'000;

  StepVote vote_;
  std::function<bool()> requested_;
  std::int64_t every_ = 1;
};

}  // namespace trireme::train
