#pragma once
#include <array>
#include <cstdint>

#include "comm/communicator.hpp"

namespace trireme {

/// One small reduction a step, posted before it and read after it, so that it costs no waiting: all
/// ranks stop after the same step though a signal reached only one, and all commit a checkpoint
/// once every writer is done.
class StopVote {
 public:
  struct Result {
    bool stop = false;          // some rank was asked to stop
    bool writers_done = false;  // every rank's checkpoint writer is done
  };

  explicit StopVote(Communicator& world) : world_(world) {}

  void post(bool stop, bool writer_done) {
    votes_ = {stop ? 1 : 0, writer_done ? 0 : 1};
    work_ = world_.all_reduce(
        votes_.data(), votes_.data(), votes_.size(), DType::i32, ReduceOp::max, {}, "stop vote");
  }

  Result take() {
    work_->wait();
    work_.reset();
    return {votes_[0] != 0, votes_[1] == 0};
  }

 private:
  Communicator& world_;
  std::array<std::int32_t, 2> votes_{};
  WorkPtr work_;
};

}  // namespace trireme
