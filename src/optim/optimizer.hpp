#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/problems.hpp"
#include "optim/config.hpp"
#include "optim/param_ranges.hpp"

namespace trireme::optim {

/// One state buffer of an optimizer (make_state() of the registry): one number per local element.
struct OptimizerSlot {
  std::string name;  // "exp_avg"
  at::Tensor flat;
};

/// Updates the registry's master weights from its master gradients.
///
/// An optimizer is a file with
///   a config struct with fields(): its keys of [optim] and their defaults
///   check(config, problems)        reports invalid values
///   a class with Config, num_slots(config) and a constructor of (config, registry, params)
/// and a row in registry.cpp. It updates only the parameters in `params`, so it can contain a
/// second optimizer for the others.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Runs update number `update` (from 1; skipped updates do not count) at learning rate `lr`.
  /// Gradients are final: summed, scaled and clipped.
  virtual void step(std::int64_t update, double lr) = 0;

  /// Returns true if step_in_one_pass() may be called instead of step(); on a GPU also
  /// device_clip_factor().
  [[nodiscard]] virtual bool has_one_pass() const { return false; }

  /// Runs an update with gradients that are not clipped yet. Multiplies the gradients by `factor`
  /// (fp32 scalar on their device), updates the master weights, and writes them to the weights that
  /// the model computes with. If the factor is not finite, nothing changes. On a GPU, the host does
  /// not wait for the factor. The caller must call settle() of the registry's weights() before, and
  /// publish() after it.
  virtual void step_in_one_pass(std::int64_t update, double lr, const at::Tensor& factor);

  /// Returns the state to save and load, without the step number. No two optimizers use the same
  /// slot name, so a checkpoint of one is never loaded as the state of another.
  [[nodiscard]] virtual std::vector<OptimizerSlot> slots() = 0;

  /// Returns the groups of ranks that step() communicates in, beyond those of the mesh.
  [[nodiscard]] virtual std::vector<comm::Communicator*> groups() const { return {}; }
};

/// Creates the optimizer `config.name` for a run of `total_steps` steps. If the number of steps is
/// unknown (0), momentum and weight decay do not decay. Throws Error(usage) that lists the known
/// names.
std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config,
                                          parallel::ParamRegistry& registry,
                                          std::int64_t total_steps = 0);
std::vector<std::string> optimizer_names();

/// Returns the number of slots of the optimizer, each as large as the master weights it updates.
std::size_t num_optimizer_slots(const OptimConfig& config);

/// Says whether an optimizer gathers whole matrices, and also the lines of matrices
/// (matrix_exchange.hpp).
enum class MatrixUse { none, whole, with_lines };

MatrixUse matrix_use(const OptimConfig& config);

/// Returns the value of optim.orthogonalize for an optimizer of whole matrices.
std::string orthogonalization(const OptimConfig& config);

/// Returns optim.decay_schedule; "constant" if the optimizer does not have this key.
std::string decay_schedule(const OptimConfig& config);

/// Returns the keys that optimizer `name` reads, with its defaults; empty for an unknown name.
std::vector<OptimizerKey> keys_of_optimizer(std::string_view name);

/// Returns the config of optimizer `name` with all its keys at their defaults.
OptimConfig optimizer_defaults(std::string_view name);

}  // namespace trireme::optim
