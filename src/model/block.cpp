#include "model/block.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "model/stream_norm.hpp"
#include "ops/dropout.hpp"
#include "ops/gated_activation.hpp"
#include "ops/plain_activation.hpp"

namespace trireme::model {
namespace {

enum DropoutOp : std::uint32_t {
  kAttentionOutput = 1,
  kMlpOutput = 2,
  kAdapters = 3,  // 3 to 6: the matrices in the order of Fp8Linear
  kAttentionProbability = 16
};

/// The splits of the matrices over tp, by whole heads. A rank also holds the key heads that its
/// query heads read.
struct BlockSplits {
  explicit BlockSplits(const ModelConfig& c)
      : queries{0, parallel::Axis::tp, c.head_dim},
        keys{0, parallel::Axis::tp, c.head_dim, c.num_heads},
        output{1, parallel::Axis::tp, c.head_dim} {}

  parallel::DimSplit queries;
  parallel::DimSplit keys;
  parallel::DimSplit output;
  parallel::DimSplit width{0};
  parallel::DimSplit down{1};
};

std::string prefix_of(std::int64_t layer) {
  return formatted("model.layers.{}.", layer);
}

ops::DropoutMask dropout_mask(const LayerContext& context, const parallel::Microbatch& batch,
                              double p, std::int64_t layer, std::uint32_t op, at::Tensor positions,
                              std::int64_t first_feature = 0) {
  return {p,
          context.dropout_key,
          static_cast<std::uint64_t>(batch.step),
          static_cast<std::uint32_t>(layer),
          op,
          first_feature,
          batch.samples,
          std::move(positions)};
}

}  // namespace

at::Tensor residual_dropout(const LayerContext& context, const parallel::Microbatch& batch,
                            const at::Tensor& x, std::int64_t layer, std::uint32_t op) {
  if (!batch.training || context.config.dropout == 0) return x;
  const at::Tensor positions = context.tensor.own_tokens(batch.dropout_positions);
  return ops::dropout_philox(
      x, dropout_mask(context, batch, context.config.dropout, layer, op, positions), context.path);
}

Block::Block(parallel::ParamRegistry& registry, const LayerContext& context, std::int64_t index)
    : context_(context),
      index_(index),
      activation_(ops::find_activation(context.config.activation)),
      heads_(local_heads(context.config, context.tensor.size(), context.tensor.rank())),
      registry_(registry) {
  declare_base();
  declare_biases();
  declare_post_norms();
  mix_.emplace(registry_, context_, index_, prefix_of(index_));
  if (context_.config.has_value_embedding(index_))
    values_.emplace(registry_, context_, prefix_of(index_));
  first_values_.emplace(registry_, context_, index_, prefix_of(index_));
  declare_lora();
}

parallel::WeightRef Block::declare_qk_norm(const char* name, std::int64_t size, bool partial,
                                           const std::optional<parallel::DimSplit>& split) {
  if (!context_.config.norm_gain) return weighted::kNoGain;
  parallel::ParamSpec spec{formatted("{}self_attn.{}.weight", prefix_of(index_), name),
                           {size},
                           {parallel::InitDistribution::Kind::ones, 1.0}};
  spec.decay = false;
  spec.split = split;
  spec.partial = partial;
  spec.frozen = context_.lora.on();
  return {registry_.declare(std::move(spec))};
}

void Block::declare_base() {
  const ModelConfig& c = context_.config;
  const std::string prefix = prefix_of(index_);
  const LinearShapes shapes = block_linears(c);
  const auto matrix = [&](BlockLinear which, const parallel::DimSplit& split, bool fused) {
    const LinearShape& shape = shapes.at(static_cast<std::size_t>(which));
    parallel::ParamSpec spec{formatted("{}{}.weight", prefix, shape.module),
                             {shape.rows, shape.columns},
                             init_of(which)};
    spec.split = split;
    spec.fuse_with_previous = fused;
    spec.frozen = context_.lora.on();
    return registry_.declare(std::move(spec));
  };
  const BlockSplits splits(c);
  const auto norm = [&](const char* name) {
    return declare_stream_norm(registry_, context_, prefix + name);
  };
  if (c.pre_norms) input_norm_ = norm("input_layernorm");
  qkv_ = {matrix(BlockLinear::q, splits.queries, false), 3};
  matrix(BlockLinear::k, splits.keys, true);
  matrix(BlockLinear::v, splits.keys, true);
  output_ = {matrix(BlockLinear::o, splits.output, false)};
  if (c.pre_norms) post_norm_ = norm("post_attention_layernorm");
  if (c.moe.in_layer(index_)) {
    experts_ = std::make_unique<Experts>(registry_, context_, index_, prefix);
  } else {
    const bool gated = c.gated_mlp();
    if (gated) gate_up_ = {matrix(BlockLinear::gate, splits.width, false), 2};
    const parallel::ParamId up = matrix(BlockLinear::up, splits.width, gated);
    if (!gated) gate_up_ = {up};
    down_ = {matrix(BlockLinear::down, splits.down, false)};
  }
  if (c.qk_norm && c.qk_norm_whole) {
    const auto whole = [&](const char* name, std::int64_t heads, const parallel::DimSplit& split) {
      return declare_qk_norm(name, heads * c.head_dim, /*partial=*/false, split);
    };
    qk_norms_.query = whole("q_norm", c.num_heads, splits.queries);
    qk_norms_.key = whole("k_norm", c.num_kv_heads, splits.keys);
  } else if (c.qk_norm) {
    qk_norms_.query = declare_qk_norm("q_norm", c.head_dim, /*partial=*/true);
    qk_norms_.key = declare_qk_norm("k_norm", c.head_dim, /*partial=*/true);
  }
}

/// A bias is split like the rows of its matrix. A bias of a row-parallel matrix is replicated and
/// added once, after the sum over ranks. With sequence parallelism, each rank then has the gradient
/// of its own tokens only.
void Block::declare_biases() {
  const ModelConfig& c = context_.config;
  const LinearShapes shapes = block_linears(c);
  const auto bias = [&](BlockLinear which, const std::optional<parallel::DimSplit>& split,
                        bool fused = false) {
    const LinearShape& shape = shapes.at(static_cast<std::size_t>(which));
    parallel::ParamSpec spec{formatted("{}{}.bias", prefix_of(index_), shape.module),
                             {shape.rows},
                             {parallel::InitDistribution::Kind::zeros}};
    spec.split = split;
    spec.partial = !split && context_.tensor.sequence_parallel();
    spec.fuse_with_previous = fused;
    spec.decay = false;
    spec.frozen = context_.lora.on();
    return registry_.declare(std::move(spec));
  };
  const BlockSplits splits(c);
  if (c.qkv_bias) {
    qkv_bias_ = {bias(BlockLinear::q, splits.queries), 3};
    bias(BlockLinear::k, splits.keys, true);
    bias(BlockLinear::v, splits.keys, true);
  }
  if (c.attention_output_bias) output_bias_ = {bias(BlockLinear::o, std::nullopt)};
  if (!c.mlp_bias) return;
  const bool gated = c.gated_mlp();
  if (gated) gate_up_bias_ = {bias(BlockLinear::gate, splits.width), 2};
  const parallel::ParamId up = bias(BlockLinear::up, splits.width, gated);
  if (!gated) gate_up_bias_ = {up};
  down_bias_ = {bias(BlockLinear::down, std::nullopt)};
}

void Block::declare_post_norms() {
  if (!context_.config.post_norms) return;
  const std::string prefix = prefix_of(index_);
  attention_output_norm_ =
      declare_stream_norm(registry_, context_, prefix + "attention_output_norm");
  mlp_output_norm_ = declare_stream_norm(registry_, context_, prefix + "mlp_output_norm");
}

void Block::declare_lora() {
  const BlockSplits splits(context_.config);
  const auto adapters = [&](const std::vector<AdaptedLinear>& linears) {
    return declare_adapters(registry_, context_.lora, context_.config, context_.tensor,
                            prefix_of(index_), linears);
  };
  using enum BlockLinear;
  qkv_adapters_ = adapters({{q, splits.queries}, {k, splits.keys}, {v, splits.keys}});
  output_adapters_ = adapters({{o, splits.output}});
  gate_up_adapters_ = adapters({{gate, splits.width}, {up, splits.width}});
  down_adapters_ = adapters({{down, splits.down}});
}

weighted::AdaptersUse Block::use_of(const parallel::Microbatch& batch,
                                    const weighted::Adapters& adapters, Fp8Linear which,
                                    std::int64_t first_feature) const {
  weighted::AdaptersUse use;
  const auto number = static_cast<std::int64_t>(which);
  if (batch.training && context_.fp8 != nullptr && context_.fp8->has(which)) {
    constexpr auto kLinears = static_cast<std::int64_t>(kNumFp8Linears);
    // The output of attention is also saved by attention, and without norms a matrix reads the
    // residual stream.
    const bool is_only_user = which == Fp8Linear::down ||
                              (which != Fp8Linear::output &&
                               (context_.config.pre_norms || context_.tensor.sequence_parallel()));
    use.fp8 = {context_.fp8, index_ * kLinears + number, is_only_user};
  }
  if (!batch.adapters || adapters.terms.empty()) return use;
  use.adapters = &adapters;
  use.path = context_.path;
  if (batch.training && context_.lora.dropout > 0) {
    use.dropout = dropout_mask(context_, batch, context_.lora.dropout, index_,
                               static_cast<std::uint32_t>(kAdapters + number),
                               batch.dropout_positions, first_feature);
  }
  return use;
}

bool Block::saves_codes(Fp8Linear which) const {
  return context_.recompute == parallel::Recompute::none && context_.fp8 != nullptr &&
         context_.fp8->has(which) && !context_.lora.on();
}

ops::LateResultPtr Block::late_norm(Fp8Linear which) const {
  // With tensor parallelism, weight gradients are computed during the sum of input gradients, before
  // backward of the norm.
  const bool saves = context_.recompute != parallel::Recompute::none ||
                     context_.norm().kind != ops::NormKind::rms || context_.tensor.size() > 1 ||
                     saves_codes(which);
  return saves ? ops::LateResultPtr() : c10::make_intrusive<ops::LateResult>();
}

RecomputeFn Block::recompute_norm(const at::Tensor& x,
                                  const std::optional<parallel::WeightRef>& norm) const {
  if (context_.recompute != parallel::Recompute::selective) return {};
  return [this, norm, kept = x.detach()] {
    if (!norm) return context_.tensor.whole(kept);
    return context_.tensor.whole(
        ops::norm_forward(kept, weighted::gain_of(registry_, *norm, kept), context_.norm()).y);
  };
}

at::Tensor Block::project(const parallel::Microbatch& batch, const at::Tensor& x) const {
  weighted::AdaptersUse use = use_of(batch, qkv_adapters_, Fp8Linear::qkv);
  if (input_norm_) use.late = late_norm(Fp8Linear::qkv);
  const at::Tensor normed = with_norm(x, input_norm_, use.late);
  const at::Tensor qkv = weighted::column_parallel_linear(context_.tensor, normed, registry_, qkv_,
                                                          recompute_norm(x, input_norm_), use);
  const at::Tensor biased = with_bias(qkv, qkv_bias_);
  return values_ ? values_->added(batch, normed, biased) : biased;
}

at::Tensor Block::with_whole_norm(const at::Tensor& qkv) const {
  const ModelConfig& c = context_.config;
  if (!c.qk_norm_whole) return qkv;
  const int rank = context_.tensor.rank();
  const std::int64_t earlier =
      rank == 0 ? 0 : local_heads(c, context_.tensor.size(), rank - 1).key.end;
  const std::int64_t shared =
      std::clamp<std::int64_t>(earlier - heads_.key.begin, 0, heads_.key.count());
  return weighted::whole_qk_norm(qkv, context_.tensor, registry_, qk_norms_,
                                 {.queries = heads_.query.count() * c.head_dim,
                                  .keys = heads_.key.count() * c.head_dim,
                                  .first_own = shared * c.head_dim,
                                  .all_queries = c.num_heads * c.head_dim,
                                  .all_keys = c.num_kv_heads * c.head_dim,
                                  .eps = c.norm_eps});
}

ops::QueryKeyValue Block::split_heads(const parallel::Microbatch& batch,
                                      const at::Tensor& qkv) const {
  const bool by_head = !context_.config.qk_norm_whole;
  return weighted::qkv_norm_rope(with_whole_norm(qkv), heads_.query.count(), heads_.key.count(),
                                 registry_, by_head ? qk_norms_ : weighted::QkNormWeights{},
                                 {{}, {}, context_.config.norm_eps, rope(), batch.positions},
                                 context_.path);
}

at::Tensor Block::finish(const parallel::Microbatch& batch, const at::Tensor& x,
                         const Recomputed& attended) const {
  const ModelConfig& c = context_.config;
  const parallel::TensorGroup& tensor = context_.tensor;
  const at::Tensor projected = weighted::row_parallel_linear(
      tensor, attended.y, registry_, output_, attended.again,
      use_of(batch, output_adapters_, Fp8Linear::output, heads_.query.begin * c.head_dim));
  const at::Tensor attention = residual_dropout(
      context_, batch, with_norm(with_bias(projected, output_bias_), attention_output_norm_),
      index_, kAttentionOutput);
  const ops::LateResultPtr late =
      post_norm_ && !experts_ ? late_norm(Fp8Linear::gate_up) : ops::LateResultPtr();
  const auto mlp_of = [&](const at::Tensor& input, const at::Tensor& normed) {
    return residual_dropout(context_, batch,
                            with_norm(mlp(batch, input, normed, late), mlp_output_norm_), index_,
                            kMlpOutput);
  };
  if (c.parallel_residual) return x + attention + mlp_of(x, with_norm(x, post_norm_, late));
  if (!post_norm_) {
    const at::Tensor sum = weighted::residual_sum(x, attention);
    return weighted::residual_sum(sum, mlp_of(sum, sum));
  }
  const auto [sum, normed] =
      weighted::add_norm(attention, x, registry_, *post_norm_, context_.norm(), late);
  return weighted::residual_sum(sum, mlp_of(sum, normed));
}

at::Tensor Block::with_bias(const at::Tensor& y,
                            const std::optional<parallel::WeightRef>& bias) const {
  return bias ? weighted::add_bias(y, registry_, *bias) : y;
}

at::Tensor Block::with_norm(const at::Tensor& y, const std::optional<parallel::WeightRef>& norm,
                            const ops::LateResultPtr& late) const {
  if (!norm) return y;
  return weighted::norm(y, registry_, *norm, context_.norm(), late);
}

at::Tensor Block::hidden_of(const at::Tensor& gate_up) const {
  return context_.config.gated_mlp() ? ops::gated_forward(gate_up, activation_, context_.path)
                                     : ops::activation_forward(gate_up, activation_);
}

at::Tensor Block::mlp(const parallel::Microbatch& batch, const at::Tensor& sum,
                      const at::Tensor& normed, const ops::LateResultPtr& late_normed) const {
  const parallel::TensorGroup& tensor = context_.tensor;
  const RecomputeFn again = recompute_norm(sum, post_norm_);
  if (experts_) return experts_->forward(batch, normed, again);
  weighted::AdaptersUse use = use_of(batch, gate_up_adapters_, Fp8Linear::gate_up);
  use.late = late_normed;
  const at::Tensor gate_up =
      with_bias(weighted::column_parallel_linear(tensor, normed, registry_, gate_up_, again, use),
                gate_up_bias_);
  const std::int64_t first_hidden =
      parallel::split_range(context_.config.intermediate_size, BlockSplits(context_.config).width,
                            tensor.size(), tensor.rank())
          .begin;
  use = use_of(batch, down_adapters_, Fp8Linear::down, first_hidden);
  // The codes of fp8 are smaller than the values that backward would compute again.
  if (!saves_codes(Fp8Linear::down)) use.late = c10::make_intrusive<ops::LateResult>();
  const at::Tensor hidden =  // [B, T, intermediate]
      context_.config.gated_mlp()
          ? ops::gated_activation(gate_up, activation_, context_.path, use.late)
          : ops::activated(gate_up, activation_, use.late);
  return with_bias(weighted::row_parallel_linear(tensor, hidden, registry_, down_, {}, use),
                   down_bias_);
}

at::Tensor Block::plain_attention(const parallel::Microbatch& batch,
                                  const ops::QueryKeyValue& heads) const {
  const double dropout = context_.config.attention_dropout;
  const std::int64_t repeat = heads.q.size(1) / heads.k.size(1);
  const at::Tensor keys = heads.k.repeat_interleave(repeat, 1);
  const at::Tensor values = heads.v.repeat_interleave(repeat, 1);
  const ops::AttentionSetup setup = attention_of(batch);
  const at::Tensor mask =
      ops::attention_mask(setup, batch.rows(), batch.length(), heads.q.device()).unsqueeze(1);
  at::Tensor scores = heads.q.matmul(keys.transpose(-2, -1)).mul(setup.scale);
  if (setup.softcap > 0) scores = scores.div(setup.softcap).tanh().mul(setup.softcap);
  at::Tensor probabilities =
      scores.masked_fill(mask.logical_not(), -INFINITY).softmax(-1);  // [B, heads, T, T]
  // One mask per head; the feature index of the mask is the key's position.
  std::vector<at::Tensor> dropped;
  for (std::int64_t head = heads_.query.begin; head < heads_.query.end; ++head) {
    const ops::DropoutMask one = dropout_mask(
        context_, batch, dropout, index_, static_cast<std::uint32_t>(kAttentionProbability + head),
        batch.dropout_positions);
    const at::Tensor of_head = probabilities.select(1, head - heads_.query.begin);
    dropped.push_back(ops::dropout_philox(of_head, one, ops::Path::plain));
  }
  return at::stack(dropped, 1).matmul(values);
}

at::Tensor Block::forward(const parallel::Microbatch& batch, const at::Tensor& input,
                          std::span<const at::Tensor> sources) const {
  const at::Tensor x = mix_->mixed(input, first_values_->terms_of(sources));
  const at::Tensor qkv = first_values_->mixed(project(batch, x), sources);
  const auto core = [this, batch](const at::Tensor& of) { return attention_core(batch, of); };
  const bool again = context_.recompute == parallel::Recompute::selective;
  const Recomputed attended = again ? recomputed(qkv, core) : Recomputed{core(qkv), {}};
  return first_values_->joined(finish(batch, x, attended), qkv);
}

}  // namespace trireme::model
