#include "model/stages/rank_stages.hpp"

#include "parallel/pipeline/stage_plan.hpp"

namespace trireme::model {

std::vector<StageRange> model_stages(const ModelConfig& config,
                                     const parallel::ParallelConfig& parallel,
                                     std::int64_t seq_len) {
  const int count = parallel::stage_placement(parallel).stages();
  if (parallel.stages == "auto" || parallel.pp == 1) return balanced_stages(config, count, seq_len);
  return parse_stages(parallel.stages, config, count);
}

std::vector<StageRange> rank_stages(const ModelConfig& config,
                                    const parallel::ParallelConfig& parallel, std::int64_t seq_len,
                                    int pp_rank) {
  const std::vector<StageRange> all = model_stages(config, parallel, seq_len);
  std::vector<StageRange> mine;
  for (const int stage : parallel::stage_placement(parallel).stages_of(pp_rank))
    mine.push_back(all[static_cast<std::size_t>(stage)]);
  return mine;
}

}  // namespace trireme::model
