#pragma once
#include <cstdint>
#include <span>

#include "data/batch.hpp"
#include "job/run_directory.hpp"
#include "train/step/step.hpp"

namespace trireme::train {

/// Counts updates that were skipped because a loss or gradient was not finite. Each rank writes a
/// line per skipped update to `skipped/rank-NNNNN.jsonl` in the run directory: step, this rank's
/// loss and its samples. Too many skipped updates in a row end the run. Skipped updates of the
/// fp16 loss scaler (UpdateResult::overflow) do not count.
class SkippedSteps {
 public:
  /// `most`: number of skipped updates in a row that do not end the run.
  SkippedSteps(job::RunDirectory folder, int rank, std::int64_t most)
      : folder_(std::move(folder)), rank_(rank), most_(most) {}

  /// Records an update. Throws Error(numeric), on all ranks at the same step, after more than
  /// `most` skipped updates in a row.
  void note(std::int64_t step, const UpdateResult& result, std::span<const data::Batch> batches);

  /// Returns the number of skipped updates in a row, which checkpoints hold.
  [[nodiscard]] std::int64_t in_a_row() const { return in_a_row_; }

  void restore(std::int64_t in_a_row) { in_a_row_ = in_a_row; }

 private:
  void write(std::int64_t step, const UpdateResult& result,
             std::span<const data::Batch> batches) const;

  job::RunDirectory folder_;
  int rank_;
  std::int64_t most_;
  std::int64_t in_a_row_ = 0;
};

}  // namespace trireme::train
