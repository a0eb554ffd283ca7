#include "model/transformer.hpp"

#include "core/error.hpp"
#include "core/philox.hpp"
#include "ops/rms_norm.hpp"

namespace trireme {
namespace {

constexpr double kInitStd = 0.02;
constexpr std::uint32_t kEmbeddingOutput = 0;

}  // namespace

Transformer::Transformer(ParamRegistry& registry, const ModelConfig& config, const ModelPart& part,
                         const TransformerOptions& options)
    : registry_(registry),
      context_{config, {}, options.path, philox_key(options.seed, "dropout")},
      part_(part),
      recompute_(options.recompute) {
  const std::vector<std::int64_t> table_shape{config.vocab_size, config.hidden_size};
  if (part.has_embedding || (part.has_head && config.tie_embeddings)) {
    ParamSpec spec{"model.embed_tokens.weight", table_shape, {InitLaw::Kind::normal, kInitStd}};
    spec.group = "embedding";
    spec.split_dim = 0;
    spec.uses = part.has_embedding && part.has_head && config.tie_embeddings ? 2 : 1;
    embedding_ = registry.declare(std::move(spec));
  }
  for (std::int64_t layer = part.first_layer; layer < part.end_layer; ++layer) {
    blocks_.push_back(std::make_unique<Block>(registry, context_, layer));
  }
  if (part.has_head) {
    ParamSpec norm{"model.norm.weight", {config.hidden_size}, {InitLaw::Kind::ones, 1.0}};
    norm.decay = false;
    norm.group = "vector";
    norm_ = registry.declare(std::move(norm));
    if (!config.tie_embeddings) {
      ParamSpec head{"lm_head.weight", table_shape, {InitLaw::Kind::normal, kInitStd}};
      head.group = "embedding";
      head.split_dim = 0;
      head_ = registry.declare(std::move(head));
    }
  }
}

void Transformer::prepare() {
  const auto dtype = registry_.dtypes().compute == at::kDouble ? at::kDouble : at::kFloat;
  context_.rope = ops::rope_tables(context_.config.max_seq_len, context_.config.head_dim,
                                   context_.config.rope_theta, dtype, registry_.device());
}

at::Tensor Transformer::embed(const Microbatch& batch) const {
  return residual_dropout(context_, batch,
                          at::embedding(registry_.weight(embedding_), batch.tokens), -1,
                          kEmbeddingOutput);
}

void Transformer::embed_backward(const Microbatch& batch, const at::Tensor& grad) {
  const at::NoGradGuard no_grad;
  const at::Tensor through = residual_dropout(context_, batch, grad, -1,
                                              kEmbeddingOutput);  // the mask is its own derivative
  at::Tensor table = registry_.main_grad(embedding_);
  table.index_add_(0, batch.tokens.flatten(),
                   through.reshape({-1, table.size(1)}).to(table.scalar_type()));
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
  at::Tensor x = embed(batch);
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    x = layer_forward(*blocks_[i], batch, x, recompute_, tape.blocks[i]);
  auto normed =
      ops::rms_norm_forward(x, registry_.weight(norm_), context_.config.norm_eps, context_.path);
  tape.last = x;
  tape.rstd = std::move(normed.rstd);
  return normed.y;
}

void Transformer::backward(const Microbatch& batch, ForwardTape& tape, const at::Tensor& grad) {
  const at::NoGradGuard no_grad;
  const auto norm =
      ops::rms_norm_backward(grad, tape.last, registry_.weight(norm_), tape.rstd, context_.path);
  registry_.add_gradient({norm_}, norm.weight);
  at::Tensor x_grad = norm.x;
  for (std::size_t i = blocks_.size(); i-- > 0;)
    x_grad = layer_backward(*blocks_[i], batch, tape.blocks[i], x_grad);
  embed_backward(batch, x_grad);
  tape = {};
}

at::Tensor Transformer::hidden(const Microbatch& batch) const {
  const at::NoGradGuard no_grad;
  at::Tensor x = embed(batch);
  for (const auto& block : blocks_) x = block->forward(batch, x);
  return final_norm(x);
}

at::Tensor Transformer::next_logits(const Microbatch& batch, KvCache& cache) {
  const at::NoGradGuard no_grad;
  at::Tensor x = embed(batch);
  for (const auto& block : blocks_) {
    x = block->forward_cached(batch, x, cache);
  }
  cache.length += batch.length();
  const at::Tensor last = final_norm(x.select(1, batch.length() - 1).contiguous());
  return at::linear(last, registry_.weight(head_weight())).to(at::kFloat);
}

KvCache Transformer::make_cache(std::int64_t rows, std::int64_t capacity) const {
  const auto options =
      at::TensorOptions().dtype(registry_.dtypes().compute).device(registry_.device());
  const std::vector<std::int64_t> shape{rows, context_.config.num_kv_heads, capacity,
                                        context_.config.head_dim};
  KvCache cache;
  for (std::size_t i = 0; i < blocks_.size(); ++i)
    cache.layers.push_back({at::zeros(shape, options), at::zeros(shape, options)});
  return cache;
}

}  // namespace trireme
