#pragma once
#include <ATen/core/Tensor.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "pipeline/schedule.hpp"

namespace trireme::parallel {

/// Messages between neighboring stages: hidden states to the next, gradients to the previous.
enum class StageMessage { activations, gradients };

/// Stage point-to-point communication of one pp rank with the ranks of its neighboring stages.
///
/// Each pair of ranks has one group per direction. NCCL runs the operations of a group one after
/// another, so a waiting receive then blocks no send. Messages and their order follow from the
/// schedule, which both ends know. Receives start in the order of the sends, two ahead of the one
/// in use. A send never waits; its tensor is released after it has left.
class StageP2P {
 public:
  /// Collective over `pp`, which must outlive this object.
  StageP2P(comm::Communicator& pp, const pipeline::Placement& placement);
  StageP2P(const StageP2P&) = delete;
  StageP2P& operator=(const StageP2P&) = delete;

  /// Starts an update. `space(i)` allocates the hidden states of micro-batch i between two stages.
  /// `schedule` must outlive the update.
  void begin(const pipeline::Schedule& schedule, std::function<at::Tensor(int)> space);

  /// Sends to the stage after `stage` (activations) or before it (gradients), on any rank; does
  /// nothing if there is no such stage.
  void send(StageMessage kind, int stage, int micro_batch, const at::Tensor& tensor);
  /// Waits for the message to `stage` from the previous stage (activations) or the next one
  /// (gradients). Returns an undefined tensor if there is no such stage.
  at::Tensor receive(StageMessage kind, int stage, int micro_batch);

  /// Releases sent tensors; on MPI this also makes progress.
  void poll();
  /// Waits until all messages have left.
  void finish();

  /// Returns the time that receives waited in this update, in seconds.
  [[nodiscard]] double waited_s() const { return waited_s_; }

  /// Returns this rank's groups, to count their traffic.
  [[nodiscard]] std::vector<comm::Communicator*> groups() const;

 private:
  struct Key {
    StageMessage kind;
    int stage;  // the receiving stage
    int micro_batch;

    auto operator<=>(const Key&) const = default;
  };

  /// One direction between this rank and another rank.
  struct Link {
    std::unique_ptr<comm::Communicator> group = {};  // the sender is its rank 0
    std::vector<Key> order = {};  // receiving: the order of this update's messages
    std::size_t started = 0;      // number of started receives
    std::map<Key, std::pair<at::Tensor, comm::WorkPtr>> arriving = {};
  };

  [[nodiscard]] bool has_stage(int stage) const {
    return stage >= 0 && stage < placement_.stages();
  }

  [[nodiscard]] int rank_of(int stage) const {
    return placement_.rank_of_stage[static_cast<std::size_t>(stage)];
  }

  void start_receives(Link& link, std::size_t until);

  comm::Communicator& pp_;
  pipeline::Placement placement_;
  std::map<int, Link> to_;  // by rank
  std::map<int, Link> from_;
  std::function<at::Tensor(int)> space_;
  std::map<Key, at::Tensor> local_;  // between two stages of this rank
  std::deque<std::pair<comm::WorkPtr, at::Tensor>> leaving_;
  double waited_s_ = 0;
};

}  // namespace trireme::parallel
