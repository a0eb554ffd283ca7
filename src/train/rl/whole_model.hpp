#pragma once
#include "comm/self/self_communicator.hpp"
#include "model/transformer.hpp"
#include "parallel/mesh.hpp"
#include "parallel/param_registry.hpp"

namespace trireme::train {

/// A copy of the whole model on each rank, for a layout that divides the model between ranks. The
/// engine reads this copy. It has the dtype that the run computes with and no gradients.
class WholeModel {
 public:
  struct Setup {
    const model::ModelConfig& model;
    ops::Path path = ops::Path::fast;
    model::LoraConfig lora = {};
    at::ScalarType dtype = at::kFloat;
    at::Device device = at::kCPU;
  };

  /// Allocates memory but sets no weights.
  explicit WholeModel(const Setup& setup);
  WholeModel(const WholeModel&) = delete;
  WholeModel& operator=(const WholeModel&) = delete;

  /// Copies the current master weights of all ranks. Collective over the world of `parts`.
  void copy_weights(const parallel::ParamRegistry& parts);

  [[nodiscard]] model::Transformer& transformer() { return transformer_; }

 private:
  comm::SelfCommunicator self_;
  parallel::Mesh mesh_;
  parallel::ParamRegistry registry_;
  model::Transformer transformer_;
};

}  // namespace trireme::train
