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

namespace trireme {

/// What goes from a stage to its neighbour: hidden states to the next, their gradients to the one
/// before.
enum class StageCargo { activations, gradients };

/// The messages of one rank of pp with the ranks that hold its stages' neighbours.
///
/// Each pair of ranks has a group for each direction, so that on NCCL, where the operations of a
/// group run one after another, a waiting receive holds up no send. What is sent, and in which
/// order, follows from the schedule, which both ends know: receives are started in the order of the
/// sends, two ahead of the one that is waited for. A send never waits; its tensor is let go when it
/// has left.
class StageLinks {
 public:
  /// Collective over `pp`, which must outlive this.
  StageLinks(Communicator& pp, const pipeline::Placement& placement);
  StageLinks(const StageLinks&) = delete;
  StageLinks& operator=(const StageLinks&) = delete;

  /// An update begins. `space(i)`: memory for the hidden states of micro-batch i between two stages.
  /// `schedule` outlives the update.
  void begin(const pipeline::Schedule& schedule, std::function<at::Tensor(int)> space);

  /// To the stage after `stage` (activations) or before it (gradients), on whatever rank; nothing
  /// where there is none.
  void send(StageCargo cargo, int stage, int micro_batch, const at::Tensor& tensor);
  /// What `stage` gets from the stage before (activations) or after it (gradients); undefined where
  /// there is none. Waits.
  at::Tensor receive(StageCargo cargo, int stage, int micro_batch);

  /// Lets go what has left; on MPI messages move meanwhile.
  void poll();
  /// All have left.
  void finish();

  /// Of this update, in receives.
  [[nodiscard]] double waited_s() const { return waited_s_; }

  /// Groups of this rank, for counting what they sent.
  [[nodiscard]] std::vector<Communicator*> groups() const;

 private:
  struct Key {
    StageCargo cargo;
    int stage;  // that gets it
    int micro_batch;

    auto operator<=>(const Key&) const = default;
  };

  /// One direction between this rank and another.
  struct Link {
    std::unique_ptr<Communicator> group = {};  // the sender is its rank 0
    std::vector<Key> order = {};               // receiving: of the messages of this update
    std::size_t started = 0;                   // receives
    std::map<Key, std::pair<at::Tensor, WorkPtr>> arriving = {};
  };

  [[nodiscard]] bool has_stage(int stage) const {
    return stage >= 0 && stage < placement_.stages();
  }

  [[nodiscard]] int rank_of(int stage) const {
    return placement_.rank_of_stage[static_cast<std::size_t>(stage)];
  }

  void start_receives(Link& link, std::size_t until);

  Communicator& pp_;
  pipeline::Placement placement_;
  std::map<int, Link> to_;  // by rank
  std::map<int, Link> from_;
  std::function<at::Tensor(int)> space_;
  std::map<Key, at::Tensor> here_;  // between two stages of this rank
  std::deque<std::pair<WorkPtr, at::Tensor>> leaving_;
  double waited_s_ = 0;
};

}  // namespace trireme
