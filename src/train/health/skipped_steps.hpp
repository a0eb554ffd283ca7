#pragma once
#include <cstdint>
#include <span>

#include "data/batch.hpp"
#include "job/run_folder.hpp"
#include "train/step/step.hpp"

namespace trireme {

/// Updates that were skipped because a loss or gradient was not finite. Each leaves a line in
/// `skipped/rank-NNNNN.jsonl` of the run folder on every rank: step, this rank's loss and its
/// samples, so that the data can be looked at. A row too many ends the run.
///
/// The search of the fp16 loss scaler for its scale (UpdateResult::overflow) does not count.
class SkippedSteps {
 public:
  /// `most`: skipped updates in a row that the run bears; 0: none.
  SkippedSteps(RunFolder folder, int rank, std::int64_t most)
      : folder_(std::move(folder)), rank_(rank), most_(most) {}

  /// After every update. Throws Error(numeric), on all ranks at the same step, when there are more
  /// than `most` in a row.
  void note(std::int64_t step, const UpdateResult& result, std::span<const Batch> batches);

  /// For checkpoints.
  [[nodiscard]] std::int64_t in_a_row() const { return in_a_row_; }

  void restore(std::int64_t in_a_row) { in_a_row_ = in_a_row; }

 private:
  void write(std::int64_t step, const UpdateResult& result, std::span<const Batch> batches) const;

  RunFolder folder_;
  int rank_;
  std::int64_t most_;
  std::int64_t in_a_row_ = 0;
};

}  // namespace trireme
