#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.hpp"
#include "device/kernel_choice.hpp"
#include "device/own_pages.hpp"
#include "model/transformer.hpp"
#include "ops/linear.hpp"

/// The forward pass for inference: no gradients, rows of many sequences, paged keys and values. With
/// tensor parallelism, hidden_cached() and logits() are collective, and every rank gets whole
/// hidden states and logits.
namespace trireme::model {
namespace {

/// Returns x [rows, in] W^T plus the adapter terms.
at::Tensor cached_linear(const at::Tensor& x, parallel::ParamRegistry& registry,
                         parallel::WeightRef weight, const weighted::Adapters& adapters,
                         bool use_adapters, const LayerContext& context) {
  const ops::Path path = context.path;
  const at::Tensor y = context.int8.product(x, registry, weight, path);
  if (!use_adapters || adapters.terms.empty()) return y;
  const at::Tensor inner =
      ops::inference_linear(x, registry.weight(adapters.a), path).mul_(adapters.scale);
  std::int64_t first = 0;
  for (const weighted::Adapters::Term& term : adapters.terms) {
    const at::Tensor b = registry.weight(term.b);  // [rows of W, rank]
    y.narrow(1, term.first_row, b.size(0))
        .add_(ops::inference_linear(inner.narrow(1, first, adapters.rank), b, path));
    first += adapters.rank;
  }
  return y;
}

}  // namespace

const ops::PagedPlan& CachedStep::plan(const ops::AttentionMask& mask) const {
  const auto found = std::ranges::find(plans, mask, &ops::PagedPlan::mask);
  TRIREME_ASSERT(found != plans.end());
  return *found;
}

at::Tensor Block::forward_cached(const CachedStep& step, const at::Tensor& input,
                                 std::span<const at::Tensor> sources, const ops::PagedCache& cache,
                                 const at::Tensor& kept) const {
  const ModelConfig& c = context_.config;
  const at::Tensor x = mix_->mixed(input, first_values_->terms_of(sources));
  const ops::Path path = context_.path;
  TRIREME_ASSERT(!context_.tensor.sequence_parallel() && context_.context.size() == 1);
  TRIREME_ASSERT(heads_.key_of_query.empty());
  using OptionalWeight = std::optional<parallel::WeightRef>;
  const auto with_bias = [&](const at::Tensor& y, const OptionalWeight& bias) {
    return bias ? y + registry_.weight(*bias) : y;
  };
  const auto linear = [&](const at::Tensor& in, parallel::WeightRef weight,
                          const weighted::Adapters& adapters, const OptionalWeight& bias) {
    return with_bias(cached_linear(in, registry_, weight, adapters, step.adapters, context_), bias);
  };
  // Some steps keep no row.
  const auto sum_over_ranks = [&](const at::Tensor& part) {
    return part.size(0) == 0 ? part : context_.tensor.sum(part);
  };
  // The columns of the weight are split over the ranks of tp, so each rank has a part of the sum.
  const auto summed_linear = [&](const at::Tensor& in, parallel::WeightRef weight,
                                 const weighted::Adapters& adapters, const OptionalWeight& bias) {
    const at::Tensor part = cached_linear(in, registry_, weight, adapters, step.adapters, context_);
    return with_bias(sum_over_ranks(part), bias);
  };
  const auto normed_by = [&](const at::Tensor& y, const OptionalWeight& ref) {
    if (!ref) return y;
    return ops::norm_forward(y, weighted::gain_of(registry_, *ref, y), context_.norm()).y;
  };
  const at::Tensor entered = normed_by(x, input_norm_);
  ops::QkNormRope setup{{}, {}, c.norm_eps, rope(), step.positions};
  if (qk_norms_.query && !c.qk_norm_whole) {
    const auto gain = [&](parallel::WeightRef ref) {
      return c.norm_gain ? registry_.weight(ref) : at::ones({c.head_dim}, x.options());
    };
    setup.q_weight = gain(*qk_norms_.query);
    setup.k_weight = gain(*qk_norms_.key);
  }
  const at::Tensor own = linear(entered, qkv_, qkv_adapters_, qkv_bias_);
  if (values_) values_->add_cached(step.tokens, entered, own);
  const at::Tensor qkv = first_values_->mixed(own, sources);
  const ops::QueryKeyValue heads = ops::qkv_norm_rope_forward(
      with_whole_norm(qkv.unsqueeze(0)), heads_.query.count(), heads_.key.count(), setup, path);
  const ops::AttentionSetup setting = c.attention_setup(index_);
  const ops::PagedPlan& plan = step.plan(setting.mask);
  {
    // A slot gets one value, or equal ones. The deterministic kernel would copy the whole cache.
    const device::AllowAnyKernel guard;
    ops::paged_store(heads.k, heads.v, plan, cache, path);
  }
  at::Tensor attended =
      ops::paged_attention(heads.q, plan, cache, setting.scale, path, setting.softcap);
  const at::Tensor residual = kept.defined() ? x.index_select(0, kept) : x;
  if (kept.defined()) attended = attended.index_select(0, kept);
  const at::Tensor attention = normed_by(
      summed_linear(attended, output_, output_adapters_, output_bias_), attention_output_norm_);
  at::Tensor sum;
  at::Tensor normed;
  if (c.parallel_residual) {
    sum = residual + attention;
    normed = normed_by(residual, post_norm_);
  } else if (post_norm_) {
    const auto out = ops::add_norm_forward(
        attention, residual, weighted::gain_of(registry_, *post_norm_, residual), context_.norm());
    sum = out.sum;
    normed = out.y;
  } else {
    sum = normed = attention + residual;
  }
  const auto result = [&](const at::Tensor& y) {
    return first_values_->joined(sum + normed_by(y, mlp_output_norm_), qkv);
  };
  if (experts_) return result(sum_over_ranks(experts_->forward_cached(normed)));
  const at::Tensor hidden = hidden_of(linear(normed, gate_up_, gate_up_adapters_, gate_up_bias_));
  return result(summed_linear(hidden, down_, down_adapters_, down_bias_));
}

std::vector<parallel::WeightRef> Block::linears() const {
  std::vector<parallel::WeightRef> refs{qkv_, output_};
  const std::vector<parallel::WeightRef> others =
      experts_ ? experts_->linears() : std::vector<parallel::WeightRef>{gate_up_, down_};
  refs.insert(refs.end(), others.begin(), others.end());
  return refs;
}

KvCache Transformer::make_cache(std::int64_t num_blocks) const {
  const auto options =
      at::TensorOptions().dtype(registry_.dtypes().compute).device(registry_.device());
  KvCache cache;
  const auto make = [&options](std::int64_t count) { return device::own_pages(count, options); };
  // With tensor parallelism, a rank caches only its key heads.
  const std::int64_t key_heads =
      local_heads(context_.config, context_.tensor.size(), context_.tensor.rank()).key.count();
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    cache.layers.push_back(
        ops::make_paged_cache(num_blocks, key_heads, context_.config.head_dim, make));
  }
  return cache;
}

at::Tensor Transformer::hidden_cached(const CachedStep& step, const KvCache& cache) const {
  TRIREME_ASSERT(stages_.size() == 1);
  const StageRange& stage = stages_.front();
  const at::NoGradGuard no_grad;
  parallel::UnitWeights::Walk around = begin_forward(0);
  at::Tensor x = step.in;
  if (stage.has_embedding) {
    const parallel::UnitUse use(registry_.weights(), embedding_unit_);
    std::vector<at::Tensor> previous;
    if (embedding_output_->smears()) previous = {looked_up(step.previous)};
    x = with_positions(looked_up(step.tokens), step.positions[0]);
    x = embedding_output_->forward({}, x, previous);  // [rows, D]
  }
  ResidualSources sources(context_.config);
  sources.put(kEmbeddingSource, x);
  for (std::size_t i = 0; i < blocks_.size(); ++i) {
    const std::int64_t layer = stage.first_layer + static_cast<std::int64_t>(i);
    const parallel::UnitUse use(registry_.weights(), block_units_[i]);
    // After the last layer, nothing reads the other rows.
    const bool last = layer + 1 == context_.config.num_layers;
    const at::Tensor output = blocks_[i]->forward_cached(
        step, x, sources.of(layer), cache.layers[i], last ? step.kept : at::Tensor());
    x = sources.put_output(layer, output, x);
  }
  if (!stage.has_head) {
    registry_.weights().resume(std::move(around));
    return x;
  }
  for (const std::size_t unit : head_units_) registry_.weights().use(unit);  // until the next walk
  if (!output_mix_->empty())
    x = output_mix_->mixed(x, sources.of_rows(context_.config.num_layers, x.size(0), step.kept));
  registry_.weights().resume(std::move(around));
  return final_norm(x);
}

at::Tensor Transformer::logits(const at::Tensor& hidden) const {
  TRIREME_ASSERT(has_head());
  const at::NoGradGuard no_grad;
  const ops::Int8Matrix* int8 = context_.int8.find(head_);
  at::Tensor logits =
      int8 != nullptr ? ops::inference_linear_wide(hidden, *int8, context_.path)
                      : ops::inference_linear_wide(hidden, registry_.weight(head_), context_.path);
  if (context_.tensor.size() > 1) {
    const parallel::Slice& slice = registry_.layout().param(head_).slice;
    const at::Tensor all =
        at::zeros({hidden.size(0), context_.config.vocab_size}, logits.options());
    all.narrow(1, slice.offset[0], slice.extent[0]).copy_(logits);
    logits = context_.tensor.sum(all);
  }
  const double softcap = context_.config.logit_softcap;
  return softcap > 0 ? logits.div(softcap).tanh_().mul_(softcap) : logits;
}

}  // namespace trireme::model
