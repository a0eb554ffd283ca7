#pragma once
#include <array>
#include <cstdint>

#include "comm/communicator.hpp"

namespace trireme {

/// One small reduction a step, posted before it and read after it, so that it costs no waiting: all
/// ranks stop after the same step though a signal reached only one, all save when one is asked to,
/// all commit a checkpoint once every writer is done, and all learn the sum of the traces of the
/// step before (step_chain.hpp).
class StopVote {
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

  explicit StopVote(Communicator& world) : world_(world) {}

  void post(const Vote& vote) {
    sums_ = {vote.stop ? 1U : 0U, vote.save ? 1U : 0U, vote.writer_done ? 0U : 1U, vote.trace};
    work_ = world_.all_reduce(
        sums_.data(), sums_.data(), sums_.size(), DType::u64, ReduceOp::sum, {}, "stop vote");
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

}  // namespace trireme
