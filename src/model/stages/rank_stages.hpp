#pragma once
#include "model/stages/stages.hpp"
#include "parallel/config.hpp"

namespace trireme::model {

/// Returns all stages of a model by parallel.stages. Throws Error(usage) like parse_stages.
std::vector<StageRange> model_stages(const ModelConfig& config,
                                     const parallel::ParallelConfig& parallel,
                                     std::int64_t seq_len);

std::vector<StageRange> rank_stages(const ModelConfig& config,
                                    const parallel::ParallelConfig& parallel, std::int64_t seq_len,
                                    int pp_rank);

}  // namespace trireme::model
