#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "comm/communicator.hpp"
#include "pipeline/schedule.hpp"

namespace trireme::parallel {

/// Messages between neighboring stages: hidden states go to the next stage, and gradients go to the
/// previous one.
enum class StageMessage { activations, gradients };

/// Stage point-to-point communication of one pp rank with the ranks of its neighboring stages.
///
/// Each pair of ranks has one group per direction. NCCL runs the operations of a group one after
/// another, so with separate groups a waiting receive does not block a send. This needs groups
/// without the launch order of NCCL (CommOptions::launch_order). Both ends know the schedule, which
/// determines the messages and their order. Receives start in the order of the sends. One receive is
/// started ahead of the current one: with more, a receive that cannot start yet could block another
/// stream in the same hardware queue of the GPU. None is started ahead in the first update and in
/// the first forward pass without backward: a GPU then loads kernels, and a load may wait for all
/// work on the device, so a receive would wait for a message that needs these kernels (CUDA
/// programming guide, "Lazy Loading"). A send never waits; its tensor is released after the send is
/// complete.
class StageP2P {
 public:
  /// Collective over `pp`, which must outlive this object.
  StageP2P(comm::Communicator& pp, const pipeline::Placement& placement);
  StageP2P(const StageP2P&) = delete;
  StageP2P& operator=(const StageP2P&) = delete;

  /// Starts an update. `space(i)` allocates a tensor for the hidden states of micro-batch i.
  /// `schedule` must outlive the update.
  void begin(const pipeline::Schedule& schedule, std::function<at::Tensor(int)> space);

  /// Sends `tensor` to the next stage (activations) or to the previous stage (gradients), which may
  /// be on this rank. Does nothing if there is no such stage.
  void send(StageMessage kind, int stage, int micro_batch, const at::Tensor& tensor);
  /// Waits for the message to `stage` from the previous stage (activations) or the next one
  /// (gradients). Returns an undefined tensor if there is no such stage.
  at::Tensor receive(StageMessage kind, int stage, int micro_batch);

  /// Releases the tensors of completed sends. With MPI, the call also makes progress on pending
  /// messages.
  void poll();
  /// Waits until all sends are complete.
  void finish();

  /// Returns the time that receives waited in this update, in seconds.
  [[nodiscard]] double waited_s() const { return waited_s_; }

  /// Returns this rank's groups, so that the caller can count their traffic.
  [[nodiscard]] std::vector<comm::Communicator*> groups() const;

 private:
  struct Key {
    StageMessage kind;
    int stage;  // the receiving stage
    int micro_batch;

    auto operator<=>(const Key&) const = default;
  };

  /// The messages between this rank and another rank in one direction.
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

  /// Returns the number of receives that are started ahead of the current one.
  [[nodiscard]] std::size_t ahead() const;

  void start_receives(Link& link, std::size_t until);

  comm::Communicator& pp_;
  pipeline::Placement placement_;
  std::map<int, Link> to_;  // by rank
  std::map<int, Link> from_;
  std::function<at::Tensor(int)> space_;
  std::map<Key, at::Tensor> local_;                           // between two stages of this rank
  std::deque<std::pair<at::Tensor, comm::WorkPtr>> leaving_;  // the work is destroyed first
  bool trains_ = false;            // the schedule of this update has backward passes
  std::array<bool, 2> warm_ = {};  // a schedule without, or with backward passes has ended
  double waited_s_ = 0;
};

}  // namespace trireme::parallel
