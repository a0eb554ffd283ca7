#pragma once
#include "model/stages/stages.hpp"
#include "parallel/config.hpp"

namespace trireme {

/// All stages of a model on this layout, by parallel.stages. Throws Error(usage) as parse_stages.
std::vector<StageRange> model_stages(const ModelConfig& config, const ParallelConfig& parallel,
                                     std::int64_t seq_len);

/// Of them those of one rank of pp.
std::vector<StageRange> rank_stages(const ModelConfig& config, const ParallelConfig& parallel,
                                    std::int64_t seq_len, int pp_rank);

}  // namespace trireme
