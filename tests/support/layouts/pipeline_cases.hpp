#pragma once
#include <string>
#include <vector>

#include "train/config/config.hpp"

namespace trireme::testing {

/// One way to cut a model into stages, with everything else that ranks share. Factors of its matrix
/// first; `number` gives the rest turns.
struct PipelineCase {
  std::int64_t dp = 1;
  std::int64_t tp = 1;
  std::int64_t pp = 2;
  std::int64_t cp = 1;
  std::string schedule = "1f1b";
  std::int64_t zero = 0;
  std::int64_t micro_batches = 1;
  std::size_t number = 0;

  [[nodiscard]] int ranks() const { return static_cast<int>(dp * tp * pp * cp); }
};

/// Every factorization of 2, 4 and 8 over (dp, tp, pp, cp) with pp > 1, x 6 schedules x ZeRO 0 to 3
/// where dp cp > 1 x 1, p and 2 p + 1 micro-batches.
std::vector<PipelineCase> all_pipeline_cases();

/// Some of them that have every pair of values of two factors which any has.
std::vector<PipelineCase> covering_cases(const std::vector<PipelineCase>& cases);

/// The configuration, with turns of ties, recompute, sequence parallelism, adapters, dropout, stages,
/// gathering and optimizer.
RunConfig config_of(const PipelineCase& one);

std::string name_of(const PipelineCase& one);

}  // namespace trireme::testing
