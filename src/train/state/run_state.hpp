#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/format/state.hpp"
#include "optim/optimizer.hpp"

namespace trireme {

/// Which parameters a StateView has.
enum class StateOf { all, trained, frozen };

/// This rank's share of the training state as a StateDict: "param/<name>" (main weights; of frozen
/// parameters those that the model computes with) and "optim/<slot>/<name>". Of elements that
/// several ranks of tp hold, one saves and reads them (load_tensors gives them to the others). CPU
/// tensors are described in place; GPU tensors through host copies that live in this object.
class StateView {
 public:
  StateView(ParamRegistry& registry, Optimizer& optimizer, StateOf of = StateOf::all);
  /// Weights alone.
  explicit StateView(ParamRegistry& registry, StateOf of = StateOf::all);

  [[nodiscard]] std::vector<StateTensor>& tensors() { return tensors_; }

  [[nodiscard]] const std::vector<StateTensor>& tensors() const { return tensors_; }

  /// Device to host copies, before a save. Nothing to do on a CPU.
  void stage();

  /// After a load: host to device copies, then every rank's share to the ranks that update the
  /// same elements (collective).
  void spread(const Mesh& mesh);

 private:
  struct Mirror {
    at::Tensor device;
    at::Tensor host;
  };

  struct Parts {
    std::vector<std::size_t> units;
    std::vector<at::Tensor> tensors;  // of each this rank's part
  };

  /// Shares of `parts[i]`, this rank's part of units[i].
  void add(const std::string& prefix, const std::vector<std::size_t>& units,
           std::vector<at::Tensor> parts);
  void add_piece(const std::string& name, const ParamSpan& piece, const at::Tensor& values,
                 bool owner);

  const ParamRegistry& registry_;
  std::vector<StateTensor> tensors_;
  std::vector<Mirror> mirrors_;
  std::vector<Parts> parts_;
};

}  // namespace trireme
