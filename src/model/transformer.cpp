#include "model/transformer.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/error.hpp"
#include "core/operation_record.hpp"
#include "core/philox.hpp"
#include "model/rope_scaling.hpp"
#include "model/stream_norm.hpp"
#include "ops/embedding.hpp"
#include "parallel/experts/row_exchange.hpp"

namespace trireme::model {
namespace {

constexpr std::uint32_t kEmbeddingOutput = 0;

parallel::Microbatch with_routes(parallel::Microbatch batch, const StageActivations& saved) {
  batch.routes = saved.routes;
  return batch;
}

/// Pairs of a head beyond rotated_dim() have frequency 0 and are not changed.
ops::RopeTables rope_tables(const ModelConfig& config, double theta, const RopeScaling& scaling,
                            at::ScalarType dtype, at::Device device) {
  const std::int64_t rotated = config.rotated_dim();
  if (scaling.kind == RopeScaling::Kind::none && rotated == config.head_dim)
    return ops::rope_tables(config.max_seq_len, config.head_dim, theta, dtype, device);
  std::vector<double> frequencies = rope_frequencies(rotated, theta, scaling, config.max_seq_len);
  frequencies.resize(static_cast<std::size_t>(config.head_dim / 2), 0.0);
  ops::RopeTables tables =
      ops::rope_tables(config.max_seq_len, frequencies, scaling.attention_factor, dtype, device);
  tables.cos.narrow(1, rotated / 2, (config.head_dim - rotated) / 2).fill_(1);
  return tables;
}

}  // namespace

Transformer::Transformer(parallel::ParamRegistry& registry, const ModelConfig& config,
                         const TransformerOptions& options)
    : Transformer(registry, config, {StageRange::whole(config)}, options) {}

Transformer::Transformer(parallel::ParamRegistry& registry, const ModelConfig& config,
                         const ModelStages& stages, const TransformerOptions& options)
    : registry_(registry),
      fp8_(options.fp8, config, options.path),
      context_{config,
               {},
               options.path,
               philox_key(options.seed, "dropout"),
               options.recompute,
               options.tensor,
               options.context,
               options.lora,
               &statistics_,
               options.experts,
               &fp8_},
      stages_(stages),
      masks_(config.attention_masks()) {
  for (const StageRange& stage : stages) declare_stage(stage);
}

parallel::ParamId Transformer::declare_table(parallel::ParamSpec::Table table,
                                             parallel::ParamSpec::Copies copies) {
  const ModelConfig& config = context_.config;
  const bool is_head = table == parallel::ParamSpec::Table::head;
  parallel::ParamSpec spec{is_head ? "lm_head.weight" : "model.embed_tokens.weight",
                           {config.vocab_size, config.hidden_size},
                           {parallel::InitDistribution::Kind::normal}};
  if (config.init == "uniform") spec.init.scale = is_head ? 0.001 : 0.8;
  if (config.init == "linear") spec.init.scale = 1;
  if (config.init == "linear" && is_head) spec.init = {parallel::InitDistribution::Kind::zeros};
  spec.table = table;
  spec.split = parallel::DimSplit{0};
  spec.frozen = context_.lora.on();
  spec.copies = copies;
  if (is_head || config.tie_embeddings) spec.softcap = config.logit_softcap;
  return registry_.declare(std::move(spec));
}

/// The table has its own unit, because a tied embedding on two ranks is reduced as a whole unit.
void Transformer::declare_positions() {
  const ModelConfig& config = context_.config;
  registry_.begin_unit("positions");
  parallel::ParamSpec spec{"model.embed_positions.weight",
                           {config.max_seq_len, config.hidden_size},
                           {parallel::InitDistribution::Kind::normal}};
  spec.table = parallel::ParamSpec::Table::embedding;
  spec.partial = context_.tensor.sequence_parallel();
  spec.frozen = context_.lora.on();
  positions_ = registry_.declare(std::move(spec));
}

void Transformer::declare_stage(const StageRange& stage) {
  const ModelConfig& config = context_.config;
  const bool in_two =
      config.tie_embeddings && !(stages_.front().has_embedding && stages_.back().has_head);
  using enum parallel::ParamSpec::Copies;
  using parallel::ParamSpec;
  if (stage.has_embedding) {
    registry_.begin_unit("embedding");
    embedding_ = declare_table(ParamSpec::Table::embedding, in_two ? first_of_two : none);
    embedding_output_.emplace(registry_, context_);
    if (config.learned_positions()) declare_positions();
  }
  for (std::int64_t layer = stage.first_layer; layer < stage.end_layer; ++layer) {
    registry_.begin_unit(formatted("layer {}", layer));
    first_weights_.push_back(registry_.size());
    blocks_.push_back(std::make_unique<Block>(registry_, context_, layer));
  }
  if (!stage.has_head) return;
  if (config.norm_gain || config.backout || !config.tie_embeddings) registry_.begin_unit("head");
  norm_ = declare_stream_norm(registry_, context_, "model.norm");
  const parallel::ParamId first_of_mix = registry_.size();
  output_mix_.emplace(registry_, context_, config.num_layers, "model.");
  if (!output_mix_->empty()) head_parts_.push_back(first_of_mix);
  if (!config.tie_embeddings) {
    head_ = declare_table(ParamSpec::Table::head, none);
  } else {
    if (in_two) registry_.begin_unit("embedding");  // placed like the embedding of the first stage
    head_ = declare_table(ParamSpec::Table::embedding, in_two ? second_of_two : none);
  }
}

void Transformer::prepare() {
  const auto dtype = registry_.dtypes().compute == at::kDouble ? at::kDouble : at::kFloat;
  const ModelConfig& config = context_.config;
  const RopeScaling scaling = parse_rope_scaling(config.rope_scaling);
  const at::Device device = registry_.device();
  context_.rope = rope_tables(config, config.rope_theta, scaling, dtype, device);
  if (config.local_rope_theta > 0)
    context_.local_rope = rope_tables(config, config.local_rope_theta, {}, dtype, device);
  if (!config.no_rope_layers.empty() || config.learned_positions()) {
    const std::vector<double> still(static_cast<std::size_t>(config.head_dim / 2), 0.0);
    context_.no_rope = ops::rope_tables(config.max_seq_len, still, 1.0, dtype, device);
  }
  fp8_.prepare(registry_.device());
  if (config.moe.on()) statistics_.reset(config.moe, config.num_layers, registry_.device());
  const auto unit_of = [this](parallel::ParamId id) {
    return registry_.layout().param(id).used_with;
  };
  for (const parallel::ParamId first : first_weights_) block_units_.push_back(unit_of(first));
  if (stages_.front().has_embedding) embedding_unit_ = unit_of(embedding_);
  if (stages_.front().has_embedding && config.learned_positions())
    positions_unit_ = unit_of(positions_);
  if (has_head()) {
    if (norm_.count > 0) head_parts_.push_back(norm_.first);
    head_parts_.push_back(head_);
    for (const parallel::ParamId part : head_parts_)
      if (std::ranges::find(head_units_, unit_of(part)) == head_units_.end())
        head_units_.push_back(unit_of(part));
  }
  for (const auto& [held, table] :
       {std::pair{stages_.front().has_embedding, embedding_}, {has_head(), head_}}) {
    if (held && registry_.spec(table).copies != parallel::ParamSpec::Copies::none)
      replicated_embedding_ = registry_.unit_of(table);
  }
}

parallel::IndexRange Transformer::blocks_of(std::size_t stage) const {
  parallel::IndexRange blocks;
  for (std::size_t i = 0; i <= stage; ++i)
    blocks = {blocks.end, blocks.end + stages_[i].end_layer - stages_[i].first_layer};
  return blocks;
}

void Transformer::add_units(const StageUse& use, std::vector<std::size_t>& units) const {
  const StageRange& stage = stages_[use.stage];
  const parallel::IndexRange blocks = blocks_of(use.stage);
  const auto first = block_units_.begin() + blocks.begin;
  const auto end = block_units_.begin() + blocks.end;
  if (!use.forward) {
    units.insert(units.end(), std::reverse_iterator(end), std::reverse_iterator(first));
    return;
  }
  if (stage.has_embedding) units.push_back(embedding_unit_);
  if (stage.has_embedding && context_.config.learned_positions()) units.push_back(positions_unit_);
  units.insert(units.end(), first, end);
  if (stage.has_head) units.insert(units.end(), head_units_.begin(), head_units_.end());
}

void Transformer::begin_update(const std::vector<StageUse>& uses) {
  fp8_.begin_update();
  std::vector<std::size_t> units;
  for (const StageUse& use : uses) add_units(use, units);
  registry_.weights().begin(std::move(units));
}

parallel::UnitWeights::Walk Transformer::begin_forward(std::size_t stage) const {
  std::vector<std::size_t> units;
  add_units({stage}, units);
  return registry_.weights().begin(std::move(units));
}

at::Tensor Transformer::embed(const parallel::Microbatch& batch, StageActivations* saved) const {
  at::Tensor x;
  std::vector<at::Tensor> previous;
  const parallel::UnitUse use(registry_.weights(), embedding_unit_);
  x = with_positions(looked_up(batch.tokens), context_.tensor.own_tokens(batch.positions));
  if (!embedding_output_->is_identity()) {
    if (embedding_output_->smears()) previous = {looked_up(previous_of(batch))};
    if (saved == nullptr) {
      x = embedding_output_->forward(batch, x, previous);
    } else {
      // Recomputation would need the weights of the embedding in backward.
      x = layer_forward(*embedding_output_, batch, x, parallel::Recompute::none, saved->embedding,
                        previous);
    }
  }
  return residual_dropout(context_, batch, x, -1, kEmbeddingOutput);
}

at::Tensor Transformer::looked_up(const at::Tensor& tokens) const {
  const OperationMark mark(StepWork::embedding);
  const auto [rows, elsewhere] = table_rows(tokens);
  at::Tensor x = at::embedding(registry_.weight(embedding_), rows);
  if (elsewhere.defined()) x.masked_fill_(elsewhere.unsqueeze(-1), 0);
  return scaled(context_.tensor.sum(x));
}

at::Tensor Transformer::previous_of(const parallel::Microbatch& batch) {
  return batch.previous.defined() ? batch.previous
                                  : parallel::previous_tokens(batch.tokens, batch.positions);
}

at::Tensor Transformer::with_positions(const at::Tensor& x, const at::Tensor& positions) const {
  if (!context_.config.learned_positions()) return x;
  const parallel::UnitUse use(registry_.weights(), positions_unit_);
  return x + at::embedding(registry_.weight(positions_), positions);
}

at::Tensor Transformer::scaled(const at::Tensor& x) const {
  const double scale = context_.config.embedding_scale;
  return scale == 1 ? x : x * scale;
}

std::pair<at::Tensor, at::Tensor> Transformer::table_rows(const at::Tensor& tokens) const {
  if (context_.tensor.size() == 1 && !context_.config.smear) return {tokens, {}};
  const parallel::Slice& slice = registry_.layout().param(embedding_).slice;
  const at::Tensor rows = tokens - slice.offset[0];
  const at::Tensor elsewhere = rows.lt(0).logical_or(rows.ge(slice.extent[0]));
  return {rows.masked_fill(elsewhere, 0), elsewhere};
}

void Transformer::embed_backward(const parallel::Microbatch& batch, StageActivations& saved,
                                 const at::Tensor& grad) {
  const at::NoGradGuard no_grad;
  // backward multiplies by the same mask
  at::Tensor x_grad = residual_dropout(context_, batch, grad, -1, kEmbeddingOutput);
  if (!embedding_output_->is_identity()) {
    std::vector<at::Tensor> of_previous;
    x_grad = layer_backward(*embedding_output_, batch, saved.embedding, x_grad, &of_previous);
    for (const at::Tensor& one : of_previous) add_embedding_gradient(previous_of(batch), one);
  }
  if (context_.config.learned_positions()) {
    add_row_gradients(positions_, context_.tensor.own_tokens(batch.positions), x_grad);
    registry_.run_or_defer([this] { registry_.gradient_added({positions_}); });
  }
  add_embedding_gradient(batch.tokens, x_grad);
  registry_.run_or_defer([this] { registry_.gradient_added({embedding_}); });
}

void Transformer::add_embedding_gradient(const at::Tensor& tokens, const at::Tensor& grad) {
  at::Tensor through = context_.tensor.whole(scaled(grad));
  const auto [rows, elsewhere] = table_rows(tokens);
  if (elsewhere.defined()) through = through.masked_fill(elsewhere.unsqueeze(-1), 0);
  add_row_gradients(embedding_, rows, through);
}

void Transformer::add_row_gradients(parallel::ParamId id, const at::Tensor& rows,
                                    const at::Tensor& grads) {
  registry_.run_or_defer([this, id, index = rows.flatten(), grads] {
    const at::Tensor table = registry_.master_grad(id);
    ops::add_embedding_gradient(table, index, grads.reshape({-1, table.size(1)}), context_.path);
  });
}

at::Tensor Transformer::final_norm(const at::Tensor& x) const {
  return ops::norm_forward(x, weighted::gain_of(registry_, norm_, x), context_.norm()).y;
}

bool Transformer::trains_norm() const {
  return norm_.count > 0 && registry_.trained(norm_);
}

at::Tensor Transformer::forward(std::size_t stage, const parallel::Microbatch& given,
                                const at::Tensor& in, StageActivations& saved) {
  const at::NoGradGuard no_grad;
  if (context_.config.moe.on() && context_.recompute == parallel::Recompute::full)
    saved.routes = std::make_shared<parallel::RouteMemo>();
  const parallel::Microbatch batch = with_routes(given, saved);
  const parallel::IndexRange blocks = blocks_of(stage);
  saved.blocks.assign(static_cast<std::size_t>(blocks.count()), {});
  const bool trains_embedding = stages_[stage].has_embedding && registry_.trained({embedding_});
  at::Tensor x =
      stages_[stage].has_embedding ? embed(batch, trains_embedding ? &saved : nullptr) : in;
  ResidualSources sources(context_.config);
  sources.put(kEmbeddingSource, x);
  std::int64_t layer = stages_[stage].first_layer;
  for (auto i = static_cast<std::size_t>(blocks.begin);
       LayerActivations & of_block : saved.blocks) {
    const parallel::UnitUse use(registry_.weights(), block_units_[i]);
    const at::Tensor output =
        layer_forward(*blocks_[i++], batch, x, context_.recompute, of_block, sources.of(layer));
    x = sources.put_output(layer++, output, x);
  }
  if (!stages_[stage].has_head) return x;
  for (const std::size_t unit : head_units_)
    registry_.weights().use(unit);  // until backward_final_norm()
  if (!output_mix_->empty())
    x = layer_forward(*output_mix_, batch, x, parallel::Recompute::none, saved.output,
                      sources.of(layer));
  auto normed = ops::norm_forward(x, weighted::gain_of(registry_, norm_, x), context_.norm());
  saved.last = x;
  saved.rstd = std::move(normed.rstd);
  return context_.tensor.whole(normed.y);
}

void Transformer::backward_final_norm(StageActivations& saved, const at::Tensor& grad) {
  const at::NoGradGuard no_grad;
  const auto norm = ops::norm_backward(context_.tensor.sum(grad), saved.last,
                                       weighted::gain_of(registry_, norm_, saved.last), saved.rstd,
                                       context_.norm());
  saved.last_grad = norm.x;
  if (trains_norm()) saved.norm_grad = norm.weight.clone();  // norm.weight is a view
  saved.last.reset();
  saved.rstd.reset();
  for (const std::size_t unit : head_units_) registry_.weights().done(unit);
}

at::Tensor Transformer::backward(std::size_t stage, const parallel::Microbatch& given,
                                 StageActivations& saved, const at::Tensor& grad) {
  const at::NoGradGuard no_grad;
  const parallel::Microbatch batch = with_routes(given, saved);
  at::Tensor x_grad = grad;
  if (stages_[stage].has_head) {
    x_grad = saved.last_grad;
    if (trains_norm())
      registry_.run_or_defer(
          [this, grad_of_norm = saved.norm_grad] { registry_.add_gradient(norm_, grad_of_norm); });
  }
  ResidualSources sums(context_.config);
  std::vector<at::Tensor> of_sources;
  std::int64_t layer = stages_[stage].end_layer;
  if (stages_[stage].has_head && !output_mix_->empty()) {
    x_grad = layer_backward(*output_mix_, batch, saved.output, x_grad, &of_sources);
    sums.add_grads(layer, of_sources);
  }
  auto i = static_cast<std::size_t>(blocks_of(stage).end);
  while (!saved.blocks.empty()) {
    const parallel::UnitUse use(registry_.weights(), block_units_[--i]);
    x_grad = sums.whole_grad(--layer, x_grad);
    x_grad = layer_backward(*blocks_[i], batch, saved.blocks.back(), x_grad, &of_sources);
    sums.add_grads(layer, of_sources);
    saved.blocks.pop_back();
  }
  if (!stages_[stage].has_embedding) {
    saved = {};
    return x_grad;
  }
  if (registry_.trained({embedding_}))
    embed_backward(batch, saved, sums.whole_grad(kEmbeddingSource, x_grad));
  saved = {};
  return {};
}

at::Tensor Transformer::output(std::size_t stage, const parallel::Microbatch& batch,
                               const at::Tensor& in) const {
  const at::NoGradGuard no_grad;
  parallel::UnitWeights::Walk around = begin_forward(stage);
  at::Tensor x = stages_[stage].has_embedding ? embed(batch, nullptr) : in;
  ResidualSources sources(context_.config);
  sources.put(kEmbeddingSource, x);
  std::int64_t layer = stages_[stage].first_layer;
  const parallel::IndexRange blocks = blocks_of(stage);
  for (auto i = static_cast<std::size_t>(blocks.begin); i < static_cast<std::size_t>(blocks.end);
       ++i) {
    const parallel::UnitUse use(registry_.weights(), block_units_[i]);
    const at::Tensor output = blocks_[i]->forward(batch, x, sources.of(layer));
    x = sources.put_output(layer++, output, x);
  }
  if (stages_[stage].has_head) {
    for (const std::size_t unit : head_units_)
      // stay gathered until the next walk: the objective reads the head
      registry_.weights().use(unit);
    if (!output_mix_->empty()) x = output_mix_->mixed(x, sources.of(layer));
    x = context_.tensor.whole(final_norm(x));
  }
  registry_.weights().resume(std::move(around));
  return x;
}

}  // namespace trireme::model
