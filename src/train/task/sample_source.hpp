#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/measures.hpp"
#include "data/batch.hpp"
#include "data/order/stream.hpp"
#include "model/transformer.hpp"
#include "parallel/mesh.hpp"
#include "train/config/config.hpp"
#include "train/state/frozen_model.hpp"
#include "train/state/run_values.hpp"

namespace trireme::train {

class Critic;

/// The parts that a sample source is made from. All must outlive the source.
struct SourceContext {
  const RunConfig& config;           // resolved configuration
  const data::SampleStream& stream;  // samples of data.path
  std::span<const data::SampleSet>
      validation;             // samples of data.valid_path, or a part of data.path
  model::Transformer& model;  // its weights are set before the first next()
  const parallel::Mesh& mesh;
  comm::Communicator& world;  // all ranks, with host memory
  FrozenModel* frozen;        // model of Task::frozen(); null if there is none
  Critic* critic;             // critic of Task::critic(); null if there is none
  Measures& measures;
  std::filesystem::path run_directory;
  at::Device device;  // device of all models; the registry of `model` allocates later
};

struct UpdateSamples {
  /// The micro-batches of this rank: global_batch / (micro_batch * dp).
  std::vector<data::Batch> batches = {};
  std::int64_t next_sample = 0;  // number of samples that the run has used after this update
  double waited_s = 0;           // time that the ranks had no samples
  bool cancelled = false;  // a stop request ended next(): no samples, and the source is as before
};

/// Result of a validation that a source computes with answers of the current weights.
struct GeneratedValidation {
  double loss = 0;  // the lower, the better
  std::vector<std::pair<std::string, double>> metrics = {};
  bool cancelled = false;  // a stop request ended the validation: there is no result
};

/// Source of the samples of each update. It is the only interface that the training loop,
/// checkpoints, resume and validation use.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// Continues after the samples of a checkpoint. A resumed run calls it before next(). Throws
  /// Error(usage) if this source cannot continue there, and Error(data) if it needs a file of the
  /// checkpoint's run that is missing. The message names `checkpoint`, a path in the run directory.
  /// It must not be collective, because the caller agrees on errors.
  virtual void restore(const RunValues& saved, const std::string& checkpoint) = 0;

  /// Sets the number of steps that the run has completed. Called once before next(); a source
  /// without step-dependent samples ignores it.
  virtual void start_at(std::int64_t /*step*/) {}

  /// Sets the function that tells whether this rank has a stop request. Called once before next().
  /// If next() or validate() of a source takes long, the source calls the function and cancels the
  /// work on all ranks.
  virtual void cancel_when(std::function<bool()> /*is_requested*/) {}

  /// Puts the state after the first `next_sample` samples into the values of a checkpoint. Samples
  /// of a cancelled update do not count.
  virtual void put_state(std::int64_t next_sample, RunValues& values) = 0;

  /// Returns the phase of the run during next(), for the heartbeat (ActivitySnapshot::phase).
  [[nodiscard]] virtual const char* phase() const { return "data"; }

  /// Returns the samples of the next update with all fields of Batch set. The model has the weights
  /// before the update. Collective over all ranks.
  virtual UpdateSamples next() = 0;

  /// Starts work for the following update that can overlap with this one. Called after next() and
  /// before the update, unless it is the last one. Collective over all ranks.
  virtual void prepare_next() {}

  /// Called after each update that was not cancelled, with its time without next(). `update` is its
  /// number without skipped updates, from 1, or 0 if it was skipped. A source with a critic updates
  /// the critic here. Collective over all ranks.
  virtual void updated(double /*seconds*/, std::int64_t /*update*/) {}

  /// Returns the origin of the samples [first, end) for an error message.
  [[nodiscard]] virtual std::string origin(std::int64_t first, std::int64_t end) const = 0;

  [[nodiscard]] virtual std::span<const data::SampleSet> validation() const = 0;

  /// Validates with generated answers; nullopt: the objective validates on validation(). The result
  /// is equal on all ranks. Collective over all ranks.
  virtual std::optional<GeneratedValidation> validate() { return std::nullopt; }
};

}  // namespace trireme::train
