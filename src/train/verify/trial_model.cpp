#include "train/verify/trial_model.hpp"

#include <algorithm>
#include <random>

#include "core/by_name.hpp"
#include "model/stages/rank_stages.hpp"

namespace trireme::train {
namespace {

std::unique_ptr<optim::Optimizer> allocate(parallel::ParamRegistry& registry,
                                           model::Transformer& model, const parallel::Mesh& mesh,
                                           const TrialShape& shape) {
  registry.allocate(mesh, shape.dtypes, shape.device);
  model.prepare();
  registry.initialize(TrialModel::kSeed);
  return optim::make_optimizer(shape.optim, registry);
}

void append_row(data::Batch& batch, std::int64_t index, std::int64_t length,
                std::int64_t vocab_size) {
  std::mt19937_64 random(static_cast<std::uint64_t>(index) * 7919 + 1);
  const bool single_tokens = index % 5 == 4;
  const std::int64_t row_begin = batch.B * length;
  const std::int64_t filled = length - static_cast<std::int64_t>(random() % 4);
  std::int64_t at = 0;
  while (at < length) {
    const bool padding = at >= filled;
    const std::int64_t rest = (padding ? length : filled) - at;
    std::int64_t size =
        single_tokens
            ? 1
            : 1 + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(length / 2));
    size = padding ? rest : std::min(size, rest);
    for (std::int64_t i = 0; i < size; ++i) {
      batch.tokens.push_back(
          padding ? 0
                  : static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(vocab_size)));
      batch.positions.push_back(i);
    }
    for (std::int64_t i = 0; i < size; ++i) {
      const bool target = !padding && i + 1 < size;
      batch.targets.push_back(target
                                  ? batch.tokens[static_cast<std::size_t>(row_begin + at + i + 1)]
                                  : data::kIgnoreTarget);
      batch.num_targets += target ? 1 : 0;
    }
    at += size;
    batch.segment_bounds.push_back(static_cast<std::int32_t>(row_begin + at));
  }
  batch.sample_indices.push_back(index);
  batch.row_lengths.push_back(filled);
  ++batch.B;
}

}  // namespace

UpdateFacts facts_of(const TrialShape& shape, const parallel::Mesh& mesh,
                     const std::vector<data::Batch>& batches, std::int64_t step) {
  return update_facts(shape.model, shape.optim, shape.dtypes, mesh,
                      {batches.front().B, batches.front().T,
                       static_cast<std::int64_t>(batches.size()), step, shape.path, shape.fp8},
                      shape.lora);
}

TrialModel::TrialModel(comm::Communicator& world, const TrialShape& shape)
    : mesh(world, shape.parallel, shape.node_of_rank),
      model(registry, shape.model,
            model::rank_stages(shape.model, shape.parallel,
                               shape.seq_len > 0 ? shape.seq_len : shape.model.max_seq_len,
                               mesh.rank(parallel::Axis::pp)),
            {shape.path,
             by_name<parallel::Recompute>(parallel::kRecomputes, shape.parallel.recompute),
             kSeed,
             {mesh.group(parallel::Axis::tp), shape.parallel.sequence_parallel,
              shape.parallel.tp_chunks},
             parallel::context_group(mesh),
             shape.lora,
             parallel::ExpertGroup(mesh),
             shape.fp8}),
      objective(registry, model.head_weight(), shape.path, model.tensor()),
      optimizer(allocate(registry, model, mesh, shape)),
      step({model, objective, *optimizer, scaler, mesh, measures, nullptr, shape.layer_norms_every,
            shape.layer_histograms, shape.graphs},
           shape.optim.clip_norm) {}

data::Batch make_rows(const std::vector<std::int64_t>& indices, std::int64_t length,
                      std::int64_t vocab_size) {
  data::Batch batch;
  batch.T = length;
  batch.segment_bounds.push_back(0);
  for (const std::int64_t index : indices) append_row(batch, index, length, vocab_size);
  return batch;
}

}  // namespace trireme::train
