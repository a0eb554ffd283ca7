#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <utility>

#include "comm/communicator.hpp"

namespace trireme {

/// One small reduction a step, posted before it and read after it, so that it costs no waiting: all
/// ranks stop after the same step though a signal reached only one, all save when one is asked to,
/// all commit a checkpoint once every writer is done, and all learn the sum of the traces of the
/// step before (step_chain.hpp).
class StepVote {
 public:
  struct Vote {
    bool stop = false;
    bool save = false;
    bool writer_done = false;  // this rank's checkpoint writer has ended
    std::uint64_t trace = 0;
  };

  struct Result {
    bool stop = false;          // some rank was asked to stop
    bool save = false;          // some rank was asked to save
    bool writers_done = false;  // every rank's checkpoint writer is done
    std::uint64_t trace = 0;    // sum over ranks, modulo 2^64
  };

  explicit StepVote(Communicator& world) : world_(world) {}

  void post(const Vote& vote) {
    sums_ = {vote.stop ? 1U : 0U, vote.save ? 1U : 0U, vote.writer_done ? 0U : 1U, vote.trace};
    work_ = world_.all_reduce({.input = sums_.data(),
                               .output = sums_.data(),
                               .count = sums_.size(),
                               .dtype = DType::u64,
                               .op = ReduceOp::sum,
                               .tag = "stop vote"});
  }

  /// Between the two, now and then: the reduction goes in rounds, which move when it is asked.
  void advance() {
    if (work_) work_->poll();
  }

  Result take() {
    work_->wait();
    work_.reset();
    return {sums_[0] != 0, sums_[1] != 0, sums_[2] == 0, sums_[3]};
  }

 private:
  Communicator& world_;
  std::array<std::uint64_t, 4> sums_{};
  WorkPtr work_;
};

/// Lets all ranks cancel the same update or validation before the same piece of it: a micro-batch or
/// a batch, of which every rank has equally many.
///
/// A vote is posted before one piece and read before a later one, about a second of work apart, so
/// that no rank waits. Shorter work has no vote.
class CancelVote {
 public:
  /// `requested`: returns true if a stop is requested on this rank.
  CancelVote(Communicator& world, std::function<bool()> requested)
      : vote_(world), requested_(std::move(requested)) {}

  /// What a piece takes, the same number on all ranks. Before the first call: there is a vote
  /// around each piece.
  void piece_takes(double seconds) {
    every_ = seconds > 0 ? std::clamp(static_cast<std::int64_t>(kBetween_s / seconds),
                                      std::int64_t{1}, kMostPieces)
                         : 1;
  }

  /// On all ranks before piece `i` of `n`, from 0 on: true on all of them or on none.
  [[nodiscard]] bool before(std::int64_t i, std::int64_t n) {
    if (i % every_ != 0) {
      vote_.advance();
      return false;
    }
    if (i > 0 && vote_.take().stop) return true;
    if (i + every_ < n) vote_.post({.stop = requested_()});  // there is a place to read it
    return false;
  }

 private:
  static constexpr double kBetween_s = 1;
  static constexpr std::int64_t kMostPieces = 1'000'000;

  StepVote vote_;
  std::function<bool()> requested_;
  std::int64_t every_ = 1;
};

}  // namespace trireme
