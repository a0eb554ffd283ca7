#include "train/health/skipped_steps.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/log.hpp"

namespace trireme::train {

void SkippedSteps::note(std::int64_t step, const UpdateResult& result,
                        std::span<const data::Batch> batches) {
  if (!result.skipped) in_a_row_ = 0;
  if (!result.skipped || result.overflow) return;
  ++in_a_row_;
  write(step, result, batches);
  const std::string place = (folder_.skipped() / "rank-*.jsonl").string();
  if (in_a_row_ <= most_) {
    if (rank_ == 0) {
      log::warn(formatted(
          "step {}: the loss or the gradient is not finite; the update is skipped on all ranks ({} in a row, train.max_skipped_steps = {}). Its samples: {}",
          step, in_a_row_, most_, place));
    }
    return;
  }
  fail(
      ErrorKind::numeric,
      "step {}: the gradient is not finite{} (train.max_skipped_steps = {}). Its samples: {}. Saved checkpoints are untouched. A lower optim.lr, more optim.warmup_steps, or train.precision bf16 or fp32 in place of fp16 may help.",
      step, in_a_row_ > 1 ? formatted(", {} steps in a row", in_a_row_) : "", most_, place);
}

void SkippedSteps::write(std::int64_t step, const UpdateResult& result,
                         std::span<const data::Batch> batches) const {
  Json samples = Json::array();
  for (const data::Batch& batch : batches) samples.push_back(batch.sample_indices);
  const Json line{{"step", step},
                  {"loss_sum", std::isfinite(result.loss_sum) ? Json(result.loss_sum) : Json()},
                  {"num_targets", result.num_targets},
                  {"micro_batches", samples}};
  std::error_code ignored;
  std::filesystem::create_directories(folder_.skipped(), ignored);
  const auto file = folder_.skipped() / job::rank_file(rank_, ".jsonl");
  try {
    append_to_file(file, line.dump() + "\n");
  } catch (const Error& error) {  // a failed report must not end the run
    log::warn(error.what());
  }
}

}  // namespace trireme::train
