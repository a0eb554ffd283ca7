#pragma once
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/state.hpp"
#include "checkpoint/load/load.hpp"
#include "optim/optimizer.hpp"

namespace trireme::train {

/// Selects the parameters of a StateView.
enum class StateOf { all, trained, frozen };

/// This rank's shards of the training state as a StateDict: "param/<name>" (master weights; for
/// frozen parameters the compute weights) and "optim/<slot>/<name>" (also for the EMA of the weights). If several ranks of tp hold
/// the same elements, one of them saves and loads them, and load_tensors sends them to the others.
/// CPU tensors are used in place; GPU tensors through host copies that this object owns.
class StateView {
 public:
  /// `more`: slots beside those of the optimizer.
  StateView(parallel::ParamRegistry& registry, optim::Optimizer& optimizer,
            StateOf of = StateOf::all, std::span<const optim::OptimizerSlot> more = {});
  /// Views the weights only.
  explicit StateView(parallel::ParamRegistry& registry, StateOf of = StateOf::all);

  [[nodiscard]] std::vector<checkpoint::StateTensor>& tensors() { return tensors_; }

  [[nodiscard]] const std::vector<checkpoint::StateTensor>& tensors() const { return tensors_; }

  /// Copies device tensors to the host before a save. Does nothing on a CPU.
  void stage();

  /// Copies host tensors to the device after a load, then sends every shard to the ranks that
  /// update the same elements. Collective.
  void spread(const parallel::Mesh& mesh);

 private:
  struct Mirror {
    at::Tensor device;
    at::Tensor host;
  };

  struct Parts {
    std::vector<std::size_t> units;
    std::vector<at::Tensor> tensors;  // this rank's shard of each unit
  };

  /// Adds the owned shards of `parts[i]`, which is this rank's shard of units[i].
  void add(const std::string& prefix, const std::vector<std::size_t>& units,
           std::vector<at::Tensor> parts);
  void add_piece(const std::string& name, const parallel::ParamSpan& piece,
                 const at::Tensor& values, bool owner);

  const parallel::ParamRegistry& registry_;
  std::vector<checkpoint::StateTensor> tensors_;
  std::vector<Mirror> mirrors_;
  std::vector<Parts> parts_;
};

/// Like load_tensors, but converts floating-point tensors of another dtype, and ignores optimizer
/// state and a critic that `state` does not name. Collective.
void load_converted(const checkpoint::Checkpoint& checkpoint, checkpoint::StateDict& state,
                    comm::Communicator& world);

}  // namespace trireme::train
