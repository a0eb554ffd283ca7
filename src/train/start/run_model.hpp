#pragma once
#include <memory>
#include <string>

#include "core/measures.hpp"
#include "model/transformer.hpp"
#include "objective/objective.hpp"
#include "optim/loss_scaler.hpp"
#include "optim/optimizer.hpp"
#include "parallel/mesh.hpp"
#include "train/start/frozen_start.hpp"
#include "train/start/run_data.hpp"
#include "train/start/run_request.hpp"
#include "train/state/run_state.hpp"
#include "train/step/step.hpp"

namespace trireme {

/// What is built from the configuration once it is resolved, in the order of its dependencies.
struct RunModel {
  std::unique_ptr<Communicator> device_world;  // null on a CPU: the control world serves
  Mesh mesh;
  ParamRegistry registry;
  Transformer transformer;
  std::unique_ptr<FrozenModel> frozen;  // the task's; null: it needs none
  std::unique_ptr<Objective> objective;
  std::unique_ptr<SampleSource> samples;
  std::unique_ptr<Optimizer> optimizer;
  LossScaler scaler;
  Step step;
  StateView state;

  /// Allocates; no weight is set. The objective and the step declare their measures.
  RunModel(const RunRequest& run, const RunData& data, const FrozenStart& frozen_start,
           at::Device device, Measures& measures);

  /// Bytes of the state that this rank saves.
  [[nodiscard]] std::size_t state_bytes() const;

  /// Ranks, micro-batch and mesh, as text: what the order of sums depends on.
  [[nodiscard]] std::string layout(const RunRequest& run) const;
};

/// Threads, kernels and device of this rank, then the model on it.
std::unique_ptr<RunModel> build_model(const RunRequest& run, const RunData& data,
                                      const FrozenStart& frozen_start, Measures& measures);

}  // namespace trireme
