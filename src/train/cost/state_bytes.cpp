#include "train/cost/state_bytes.hpp"

namespace trireme::train {

double held_elements(const UpdateFacts& facts, const Elements& elements, bool sharded) {
  if (!sharded) return elements.dense + elements.experts;
  const double dense = elements.dense / static_cast<double>(facts.shards());
  if (elements.experts == 0) return dense;
  return dense + elements.experts / static_cast<double>(facts.expert_shards());
}

double weight_bytes(const UpdateFacts& facts, const Elements& elements) {
  return held_elements(facts, elements, facts.weights_sharded()) *
         static_cast<double>(facts.compute_size());
}

StateBytes state_bytes(const UpdateFacts& facts, const Elements& trained) {
  const auto main = static_cast<double>(facts.master_size());
  const double own = held_elements(facts, trained, facts.parallel.zero >= 1) * main;
  const bool whole_grads = facts.parallel.zero < 2 && !facts.parallel.reproducible;
  return {.weights = weight_bytes(facts, trained),
          .main = facts.has_master_copy() ? own : 0,
          .grads = whole_grads ? held_elements(facts, trained, /*sharded=*/false) * main : own,
          .optimizer = static_cast<double>(facts.state_slots()) * own};
}

Elements mean_elements(const UpdateFacts& facts, double count, double experts) {
  const parallel::ParallelConfig& parallel = facts.parallel;
  const auto ranks = static_cast<double>(parallel.tp * parallel.pp);
  if (experts == 0 || !parallel::has_expert_grid(parallel)) return {count / ranks, 0};
  const auto expert_ranks =
      static_cast<double>(parallel::expert_tensor_ranks(parallel) * parallel.ep * parallel.pp);
  return {(count - experts) / ranks, experts / expert_ranks};
}

MeanElements mean_elements(const UpdateFacts& facts) {
  const model::ModelConfig& model = facts.model;
  const Elements base =
      mean_elements(facts, model.num_parameters_wide(), model.num_expert_parameters_wide());
  if (!facts.lora.on()) return {base, {}};
  const auto adapters = static_cast<double>(model::num_lora_parameters(facts.lora, model));
  return {mean_elements(facts, adapters, 0), base};
}

std::int64_t checkpoint_bytes(const UpdateFacts& facts) {
  constexpr std::int64_t kMainBytes = 4;  // a master weight or an element of optimizer state
  const std::int64_t head = facts.reward_head ? facts.model.hidden_size : 0;
  const std::int64_t trained = facts.lora.on() ? model::num_lora_parameters(facts.lora, facts.model)
                                               : facts.model.num_parameters() + head;
  return trained * kMainBytes * (1 + facts.state_slots());
}

}  // namespace trireme::train
