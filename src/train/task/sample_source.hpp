#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/batch.hpp"
#include "data/order/stream.hpp"
#include "model/transformer.hpp"
#include "parallel/mesh.hpp"
#include "train/config/config.hpp"
#include "train/state/run_values.hpp"

namespace trireme {

/// The parts that a sample source is made from. All outlive it.
struct SourceContext {
  const RunConfig& config;                // resolved
  const SampleStream& stream;             // data.path
  std::span<const SampleSet> validation;  // data.valid_path, or a part of data.path
  Transformer& model;                     // its weights are set before the first next()
  const Mesh& mesh;
  Communicator& world;  // all ranks, with host memory
};

/// The samples of one update.
struct UpdateSamples {
  std::vector<Batch> batches;    // of this rank: train.global_batch / (train.micro_batch * dp)
  std::int64_t next_sample = 0;  // number of samples that the run has used after this update
  double waited_s = 0;           // time that the ranks had no samples
};

/// Gives the samples of each update. Training loop, checkpoints, resume and validation use this
/// interface only.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  /// Continues after the samples of a checkpoint. Called before next(), for a run that continues.
  /// Throws Error(usage) if this source cannot continue there; the message names `checkpoint`.
  virtual void restore(const RunValues& saved, const std::string& checkpoint) = 0;

  /// Puts the state after the first `next_sample` samples into the values of a checkpoint. An update
  /// that was cancelled after its next() is not among them.
  virtual void put_state(std::int64_t next_sample, RunValues& values) const = 0;

  /// Returns the samples of the next update with everything in a Batch filled. The model has the
  /// weights before the update. Collective over all ranks.
  virtual UpdateSamples next() = 0;

  /// Called after next() and before the update, unless it is the last one: begins work for the
  /// following update that can overlap with this one. Collective over all ranks.
  virtual void prepare_next() {}

  /// Returns where the samples [first, end) are from, for an error message.
  [[nodiscard]] virtual std::string origin(std::int64_t first, std::int64_t end) const = 0;

  /// Returns the held-out samples of a validation.
  [[nodiscard]] virtual std::span<const SampleSet> validation() const = 0;
};

}  // namespace trireme
