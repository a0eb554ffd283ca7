#pragma once
#include <memory>
#include <string>

#include "core/measures.hpp"
#include "model/transformer.hpp"
#include "objective/objective.hpp"
#include "optim/loss_scaler.hpp"
#include "optim/optimizer.hpp"
#include "optim/weight_average.hpp"
#include "parallel/mesh.hpp"
#include "train/start/frozen_start.hpp"
#include "train/start/run_data.hpp"
#include "train/start/run_request.hpp"
#include "train/state/run_state.hpp"
#include "train/step/step.hpp"
#include "train/task/critic.hpp"

namespace trireme::train {

/// All objects that are built from the resolved configuration, in order of their dependencies.
struct RunModel {
  std::unique_ptr<comm::Communicator> device_world;  // null on a CPU, which uses the control world
  parallel::Mesh mesh;
  parallel::ParamRegistry registry;
  model::Transformer transformer;
  std::unique_ptr<FrozenModel> frozen;  // frozen model of the task; null if it has none
  std::unique_ptr<Critic> critic;       // null if the task has none
  std::unique_ptr<objective::Objective> objective;
  std::unique_ptr<SampleSource> samples;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<optim::WeightAverage> average;  // null without train.ema_decay
  optim::LossScaler scaler;
  Step step;
  StateView state;
  bool counts_text = false;  // true if validation also computes bits per byte

  /// Allocates memory but sets no weights. The objective and the step declare their measures.
  RunModel(const RunRequest& run, const RunData& data, const FrozenStart& frozen_start,
           at::Device device, Measures& measures);

  /// Returns true if the host waits in collectives of an update, so that its waiting time is known.
  /// With NCCL, the device waits.
  [[nodiscard]] bool host_waits_for_ranks() const {
    return device_world == nullptr || device_world->size() == 1;
  }

  /// Returns the tensors that a checkpoint holds: those of the model and of the critic.
  [[nodiscard]] std::vector<checkpoint::StateTensor> saved_tensors() const;

  /// Copies device tensors to the host before a save. Does nothing on a CPU.
  void stage();

  /// Returns the number of bytes of the training state that this rank saves.
  [[nodiscard]] std::size_t state_bytes() const;

  /// Returns the number of ranks, the micro batch size and the mesh as text. The order of
  /// floating-point sums depends on these values.
  [[nodiscard]] std::string layout(const RunRequest& run) const;
};

/// Sets up threads, kernels and device of this rank, then builds the model on this device.
std::unique_ptr<RunModel> build_model(const RunRequest& run, const RunData& data,
                                      const FrozenStart& frozen_start, Measures& measures);

}  // namespace trireme::train
