#include <ATen/ATen.h>

#include "model/block.hpp"
#include "ops/attention.hpp"
#include "ops/upload.hpp"

/// The attention of one layer between its projections.
namespace trireme::model {
namespace {

/// Merges heads: [B, heads, T, D] to [B, T, heads D].
at::Tensor merged(const at::Tensor& heads) {
  return heads.transpose(1, 2).flatten(2);
}

}  // namespace

const ops::RopeTables& Block::rope() const {
  const ModelConfig& c = context_.config;
  if (!c.has_rope(index_)) return context_.no_rope;
  return c.local_rope_theta > 0 && c.has_window(index_) ? context_.local_rope : context_.rope;
}

ops::AttentionSetup Block::attention_of(const parallel::Microbatch& batch) const {
  ops::AttentionSetup setup = context_.config.attention_setup(index_, batch.bounds);
  std::int64_t& window = setup.mask.window;
  const std::int64_t limit = batch.training ? context_.training_window : 0;
  if (limit > 0 && (window == 0 || window > limit)) window = limit;
  setup.memo = batch.attention;
  return setup;
}

at::Tensor Block::attend(const parallel::Microbatch& batch, const ops::QueryKeyValue& heads) const {
  if (batch.training && context_.config.attention_dropout > 0) return plain_attention(batch, heads);
  ops::AttentionSetup setup = attention_of(batch);
  const parallel::ContextGroup& context = context_.context;
  if (context.size() > 1) {
    return parallel::context_attention(heads.q, heads.k, heads.v,
                                       {std::move(setup), batch.positions_of_ranks}, *context.group,
                                       context.form, context_.path);
  }
  return ops::attention(heads.q, heads.k, heads.v, setup, context_.path);
}

at::Tensor Block::attention_core(const parallel::Microbatch& batch, const at::Tensor& qkv) const {
  ops::QueryKeyValue heads = split_heads(batch, qkv);
  if (!heads_.key_of_query.empty()) {  // repeat key heads for each query head
    const at::Tensor key_of_query =
        ops::upload(at::tensor(heads_.key_of_query, at::kLong), qkv.device());
    heads.k = heads.k.index_select(1, key_of_query);
    heads.v = heads.v.index_select(1, key_of_query);
  }
  return merged(attend(batch, heads));
}

}  // namespace trireme::model
