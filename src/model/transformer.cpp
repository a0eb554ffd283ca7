#include "model/transformer.hpp"

#include "core/error.hpp"
#include "core/philox.hpp"
#include "model/rope_scaling.hpp"
#include "ops/rms_norm.hpp"

namespace trireme {
namespace {

constexpr std::uint32_t kEmbeddingOutput = 0;

}  // namespace

Transformer::Transformer(ParamRegistry& registry, const ModelConfig& config, const ModelPart& part,
                         const TransformerOptions& options)
    : registry_(registry),
      context_{config,
               {},
               options.path,
               philox_key(options.seed, "dropout"),
               options.recompute,
               options.tensor,
               options.context,
               options.lora},
      part_(part) {
  const auto table = [&](const char* name) {
    ParamSpec spec{name, {config.vocab_size, config.hidden_size}, {InitLaw::Kind::normal}};
    spec.group = "embedding";
    spec.split = DimSplit{0};
    spec.frozen = options.lora.on();
    return registry.declare(std::move(spec));
  };
  if (part.has_embedding) {
    registry.begin_unit("embedding");
    embedding_ = table("model.embed_tokens.weight");
  }
  for (std::int64_t layer = part.first_layer; layer < part.end_layer; ++layer) {
    registry.begin_unit(formatted("layer {}", layer));
    first_weights_.push_back(registry.size());
    blocks_.push_back(std::make_unique<Block>(registry, context_, layer));
  }
  if (part.has_head) {
    registry.begin_unit("head");
    ParamSpec norm{"model.norm.weight", {config.hidden_size}, {InitLaw::Kind::ones, 1.0}};
    norm.decay = false;
    norm.group = "vector";
    norm.partial = options.tensor.sequence_parallel();
    norm.frozen = options.lora.on();
    norm_ = registry.declare(std::move(norm));
    head_ = table(config.tie_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
  }
}

void Transformer::prepare() {
  const auto dtype = registry_.dtypes().compute == at::kDouble ? at::kDouble : at::kFloat;
  const ModelConfig& config = context_.config;
  const RopeScaling scaling = parse_rope_scaling(config.rope_scaling);
  if (scaling.kind == RopeScaling::Kind::none) {
    context_.rope = ops::rope_tables(config.max_seq_len, config.head_dim, config.rope_theta, dtype,
                                     registry_.device());
  } else {
    context_.rope = ops::rope_tables(config.max_seq_len,
                                     rope_frequencies(config.head_dim, config.rope_theta, scaling),
                                     scaling.attention_factor, dtype, registry_.device());
  }
  const auto unit_of = [this](ParamId id) { return registry_.layout().param(id).used_with; };
  embedding_unit_ = unit_of(embedding_);
  for (const ParamId first : first_weights_) block_units_.push_back(unit_of(first));
  head_units_ = {unit_of(norm_)};
  if (unit_of(head_) != head_units_.front()) head_units_.push_back(unit_of(head_));
}

UnitWeights::Walk Transformer::begin_walk(bool training) const {
  std::vector<std::size_t> walk{embedding_unit_};
  walk.insert(walk.end(), block_units_.begin(), block_units_.end());
  walk.insert(walk.end(), head_units_.begin(), head_units_.end());
  if (training) walk.insert(walk.end(), block_units_.rbegin(), block_units_.rend());
  return registry_.weights().begin(std::move(walk));
}

at::Tensor Transformer::embed(const Microbatch& batch) const {
  const UnitUse use(registry_.weights(), embedding_unit_);
  const auto [rows, elsewhere] = table_rows(batch.tokens);
  at::Tensor x = at::embedding(registry_.weight(embedding_), rows);
  if (elsewhere.defined()) x.masked_fill_(elsewhere.unsqueeze(-1), 0);
  return residual_dropout(context_, batch, context_.tensor.sum(x), -1, kEmbeddingOutput);
}

std::pair<at::Tensor, at::Tensor> Transformer::table_rows(const at::Tensor& tokens) const {
  if (context_.tensor.size() == 1) return {tokens, {}};
  const Slice& slice = registry_.layout().param(embedding_).slice;
  const at::Tensor rows = tokens - slice.offset[0];
  const at::Tensor elsewhere = rows.lt(0).logical_or(rows.ge(slice.extent[0]));
  return {rows.masked_fill(elsewhere, 0), elsewhere};
}

void Transformer::embed_backward(const Microbatch& batch, const at::Tensor& grad) {
  const at::NoGradGuard no_grad;
  at::Tensor through = context_.tensor.whole(residual_dropout(
      context_, batch, grad, -1, kEmbeddingOutput));  // the mask is its own derivative
  const auto [rows, elsewhere] = table_rows(batch.tokens);
  if (elsewhere.defined()) through = through.masked_fill(elsewhere.unsqueeze(-1), 0);
  at::Tensor table = registry_.main_grad(embedding_);
  table.index_add_(0, rows.flatten(), through.reshape({-1, table.size(1)}).to(table.scalar_type()));
  registry_.gradient_added({embedding_});
}

at::Tensor Transformer::final_norm(const at::Tensor& x) const {
  return ops::rms_norm_forward(x, registry_.weight(norm_), context_.config.norm_eps, context_.path)
      .y;
}

at::Tensor Transformer::forward(const Microbatch& batch, ForwardTape& tape) {
  TRIREME_ASSERT(part_.has_embedding && part_.has_head);
  const at::NoGradGuard no_grad;
  tape.blocks.assign(blocks_.size(), {});
  begin_walk(/*training=*/true);
  at::Tensor x = embed(batch);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const UnitUse use(registry_.weights(), block_units_[i]);
    x = layer_forward(*blocks_[i], batch, x, context_.recompute, tape.blocks[i]);
  }
  for (const std::size_t unit : head_units_) registry_.weights().use(unit);  // until backward
  auto normed =
      ops::rms_norm_forward(x, registry_.weight(norm_), context_.config.norm_eps, context_.path);
  tape.last = x;
  tape.rstd = std::move(normed.rstd);
  return context_.tensor.whole(normed.y);
}

void Transformer::backward(const Microbatch& batch, ForwardTape& tape, const at::Tensor& grad) {
  const at::NoGradGuard no_grad;
  const auto norm = ops::rms_norm_backward(context_.tensor.sum(grad), tape.last,
                                           registry_.weight(norm_), tape.rstd, context_.path);
  if (registry_.trained({norm_})) registry_.add_gradient({norm_}, norm.weight);
  for (const std::size_t unit : head_units_) registry_.weights().done(unit);
  at::Tensor x_grad = norm.x;
  for (std::size_t i = blocks_.size(); i-- > 0;) {
    const UnitUse use(registry_.weights(), block_units_[i]);
    x_grad = layer_backward(*blocks_[i], batch, tape.blocks[i], x_grad);
  }
  if (registry_.trained({embedding_})) embed_backward(batch, x_grad);
  tape = {};
}

at::Tensor Transformer::hidden(const Microbatch& batch) const {
  const at::NoGradGuard no_grad;
  UnitWeights::Walk around = begin_walk(/*training=*/false);
  at::Tensor x = embed(batch);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const UnitUse use(registry_.weights(), block_units_[i]);
    x = blocks_[i]->forward(batch, x);
  }
  for (const std::size_t unit : head_units_)
    registry_.weights().use(unit);  // until the next walk: the objective reads the head
  registry_.weights().resume(std::move(around));
  return context_.tensor.whole(final_norm(x));
}

}  // namespace trireme
