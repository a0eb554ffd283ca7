#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace trireme::data {

/// The global batch size of each update of a run (data.batch_phases). "0:32,1000:64": updates 1 to
/// 1000 have 32 samples, later updates have 64.
class BatchPhases {
 public:
  struct Phase {
    std::int64_t after_step = 0;    // number of updates before this phase
    std::int64_t global_batch = 1;  // samples per update, over all ranks
  };

  /// All updates have `global_batch` samples.
  explicit BatchPhases(std::int64_t global_batch) : phases_{{0, global_batch}} {}

  /// Parses `text`. Throws Error(usage); the message begins with a verb.
  explicit BatchPhases(const std::string& text);

  [[nodiscard]] const std::vector<Phase>& phases() const { return phases_; }

  /// Returns the samples of update `step`, from 1.
  [[nodiscard]] std::int64_t global_batch(std::int64_t step) const;

  /// Returns the samples of the updates after `step` completed ones, up to update `last`.
  [[nodiscard]] std::int64_t samples(std::int64_t step, std::int64_t last) const;

  /// Returns the number of updates after `step` completed ones that use `samples` samples; the last
  /// one may be incomplete. Returns 0 or less if `samples` is 0 or less.
  [[nodiscard]] std::int64_t updates(std::int64_t step, std::int64_t samples) const;

  [[nodiscard]] std::int64_t largest() const;

  /// Returns the phases as a run sees them that begins after `step` completed updates.
  [[nodiscard]] BatchPhases after(std::int64_t step) const;

 private:
  [[nodiscard]] std::size_t index_of(std::int64_t step) const;

  std::vector<Phase> phases_;  // the first begins at 0
};

}  // namespace trireme::data
