#pragma once
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "model/config.hpp"
#include "train/planner/calibration.hpp"

/// Published measurements that the planner must predict.
namespace trireme::planner {

/// A row of Megatron-LM's table of GPT models on H100 (README of release 0.8): sequences of 4096, a
/// vocabulary of 131072, bf16, distributed optimizer, 48 data ranks.
struct MegatronRow {
  const char* preset;
  std::int64_t tp;
  std::int64_t pp;
  std::int64_t batch;
  double flops_per_s;  // for one GPU
};

constexpr double kTera = 1e12;

inline const std::array<MegatronRow, 9>& megatron_rows() {
  static const std::array<MegatronRow, 9> rows{{{"gpt-1.7b", 1, 1, 192, 408.8 * kTera},
                                                {"gpt-7.1b", 2, 1, 192, 465.9 * kTera},
                                                {"gpt-16b", 4, 1, 192, 489.1 * kTera},
                                                {"gpt-32b", 8, 1, 192, 459.6 * kTera},
                                                {"gpt-70b", 8, 2, 384, 419.7 * kTera},
                                                {"gpt-119b", 8, 4, 768, 420.5 * kTera},
                                                {"gpt-177b", 8, 6, 1152, 432.8 * kTera},
                                                {"gpt-314b", 8, 8, 1536, 474.4 * kTera},
                                                {"gpt-462b", 8, 16, 3072, 459.9 * kTera}}};
  return rows;
}

constexpr std::int64_t kMegatronLength = 4096;
constexpr std::int64_t kMegatronVocabulary = 131072;
constexpr int kMegatronData = 48;

inline model::ModelConfig model_of(const char* preset, std::int64_t vocabulary) {
  model::ModelConfig model = model::model_preset(preset);
  model::resolve(model, vocabulary);
  return model;
}

/// Returns the facts of an update in bf16 with AdamW.
inline train::UpdateFacts facts_in_bf16(const model::ModelConfig& model,
                                        const parallel::ParallelConfig& parallel, int ranks,
                                        const train::UpdateShape& shape) {
  return train::update_facts(model, optim::OptimConfig{}, device::precision_dtypes("bf16"),
                             parallel, ranks, shape, {});
}

/// Rows of a micro-batch and virtual stages are not published. Assumed: without a pipeline, a
/// micro-batch has all four rows of a rank (they fit). With a pipeline, it has one row, and there
/// are as many virtual stages as leave two layers each, or one if layers are not even.
inline MeasuredStep measured_step(const MegatronRow& row) {
  const model::ModelConfig model = model_of(row.preset, kMegatronVocabulary);
  parallel::ParallelConfig parallel;
  parallel.tp = row.tp;
  parallel.sequence_parallel = row.tp > 1;
  parallel.tp_chunks = row.tp > 1 ? 4 : 1;
  parallel.pp = row.pp;
  parallel.zero = 1;
  if (row.pp > 1) {
    const std::int64_t here = model.num_layers / row.pp;
    parallel.schedule = "interleaved";
    parallel.virtual_stages = here % 2 == 0 ? here / 2 : here;
  }
  const int ranks = static_cast<int>(row.tp * row.pp) * kMegatronData;
  const std::int64_t rows = row.batch / kMegatronData;  // rows of a data rank
  const train::UpdateShape shape = row.pp == 1 ? train::UpdateShape{rows, kMegatronLength, 1}
                                               : train::UpdateShape{1, kMegatronLength, rows};
  const double tokens = static_cast<double>(row.batch * kMegatronLength);
  const double step_s = tokens * model.flops_per_token(kMegatronLength) / (row.flops_per_s * ranks);
  return {
      facts_in_bf16(model, parallel, ranks, shape), {device_kind("h100"), ranks / 8, 8}, step_s};
}

inline std::vector<MeasuredStep> megatron_steps() {
  std::vector<MeasuredStep> steps;
  for (const MegatronRow& row : megatron_rows()) steps.push_back(measured_step(row));
  return steps;
}

inline const std::vector<Constant>& three_constants() {
  static const std::vector<Constant> constants{
      &TimeConstants::efficiency, &TimeConstants::elementwise_bytes, &TimeConstants::tp_hidden};
  return constants;
}

}  // namespace trireme::planner
