#include "train/cost/update_facts.hpp"

#include <algorithm>

#include "device/device.hpp"
#include "optim/optimizer.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "train/config/config.hpp"

namespace trireme::train {

UpdateFacts update_facts(const model::ModelConfig& model, const optim::OptimConfig& optim,
                         const device::ParamDTypes& dtypes,
                         const parallel::ParallelConfig& parallel, int ranks,
                         const UpdateShape& update, const model::LoraConfig& lora) {
  UpdateFacts facts{model,         parallel,           dtypes, optim, update.rows,
                    update.length, update.micro_steps, ranks};
  facts.lora = lora;
  facts.fp8 = update.fp8;
  facts.fp8_history = update.fp8 == model::Fp8Mode::delayed && update.step > 1;
  facts.fused = update.path == ops::Path::fast && dtypes.compute != at::kDouble &&
                model.attention_dropout == 0;
  return facts;
}

UpdateFacts update_facts(const model::ModelConfig& model, const optim::OptimConfig& optim,
                         const device::ParamDTypes& dtypes, const parallel::Mesh& mesh,
                         const UpdateShape& update, const model::LoraConfig& lora) {
  UpdateFacts facts =
      update_facts(model, optim, dtypes, mesh.config(), mesh.world().size(), update, lora);
  if (const parallel::NodeLevels* levels = mesh.node_levels())
    facts.node_replicas = levels->node->size();
  facts.averages = mesh.has_local_steps() && update.step % mesh.config().local_steps == 0;
  return facts;
}

model::TrainedParts trained_parts(const UpdateFacts& facts) {
  return model::trained_parts(facts.lora, facts.model, facts.reward_head);
}

UpdateFacts facts_of_run(const RunConfig& config, int ranks) {
  const TrainConfig& train = config.train;
  const std::int64_t at_once = train.micro_batch * data_ranks(config.parallel, ranks);
  const std::int64_t batch = config.batch_phases().largest();
  UpdateFacts facts = update_facts(
      config.model, config.optim, device::precision_dtypes(train.precision), config.parallel, ranks,
      {.rows = train.micro_batch,
       .length = train.seq_len,
       .micro_steps = std::max<std::int64_t>(1, batch / at_once),
       .path = ops::path_of(train.fused_ops && train.plain_ops.empty()),
       .fp8 = train.fp8_mode()},
      config.lora);
  facts.weight_average = train.ema_decay > 0;
  return facts;
}

std::int64_t UpdateFacts::slots() const {
  return static_cast<std::int64_t>(optim::num_optimizer_slots(optim));
}

pipeline::Schedule UpdateFacts::schedule() const {
  if (found_schedule) return *found_schedule;
  return parallel::stage_schedule(parallel, static_cast<int>(micro_steps));
}

std::int64_t UpdateFacts::data_ranks() const {
  return std::int64_t{trireme::parallel::data_ranks(parallel, ranks)} * parallel.cp;
}

std::int64_t UpdateFacts::shards() const {
  return parallel::shard_ranks(parallel, data_ranks());
}

std::int64_t UpdateFacts::expert_ranks() const {
  return parallel::expert_data_ranks(parallel, ranks);
}

std::int64_t UpdateFacts::expert_shards() const {
  return parallel::expert_shard_ranks(parallel, ranks);
}

bool UpdateFacts::has_parts() const {
  return shards() > 1 || (has_expert_grid() && expert_shards() > 1);
}

bool UpdateFacts::has_local_steps() const {
  return parallel.local_steps > 1 && data_ranks() > parallel.cp;
}

bool UpdateFacts::grads_leave_each_pass() const {
  return parallel.reproducible || (parallel.zero >= 2 && has_parts());
}

std::int64_t UpdateFacts::stream_ranks() const {
  return parallel.cp * (parallel.sequence_parallel ? parallel.tp : 1);
}

std::int64_t UpdateFacts::stream_bytes() const {
  return stream_rows() * model.hidden_size * compute_size();
}

parallel::RankCoords coords_of(const UpdateFacts& facts, int rank) {
  return parallel::rank_coords(facts.parallel, facts.ranks, rank);
}

}  // namespace trireme::train
