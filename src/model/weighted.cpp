#include "model/weighted.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/operation_record.hpp"
#include "model/lora/low_rank.hpp"
#include "model/weight_source.hpp"
#include "parallel/tensor/token_products.hpp"

namespace trireme::model::weighted {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

void keep(AutogradContext* ctx, ops::Path path) {
  ctx->saved_data["fast"] = path == ops::Path::fast;
}

ops::Path kept_path(AutogradContext* ctx) {
  return ctx->saved_data["fast"].toBool() ? ops::Path::fast : ops::Path::plain;
}

/// State that a linear's backward needs beside its weight.
struct KeptLinear : torch::CustomClassHolder {
  const parallel::TensorGroup* group;  // outlives every graph that uses it
  RecomputeFn again;
  AdaptersUse adapters;
  std::optional<Fp8Call> fp8;
  bool keeps_codes = false;  // backward needs the codes of x^T instead of x
};

/// A linear, restored in backward from the autograd context.
class Linear {
 public:
  Linear(const parallel::TensorGroup* group, const Source& source, RecomputeFn again,
         const AdaptersUse& use, bool row_parallel)
      : kept_(c10::make_intrusive<KeptLinear>()), source_(source) {
    kept_->group = group;
    kept_->again = std::move(again);
    kept_->adapters = use;
    if (use.fp8.scaling == nullptr) return;
    kept_->fp8.emplace(*use.fp8.scaling, use.fp8.linear, *group, row_parallel);
    kept_->keeps_codes = use.fp8.is_only_user && source.trained() && !adapted() && !kept_->again &&
                         !use.late && at::GradMode::is_enabled();
  }

  explicit Linear(AutogradContext* ctx) : source_(Source::kept(ctx, "weight")) {
    kept_ = c10::static_intrusive_pointer_cast<KeptLinear>(ctx->saved_data["kept"].toCapsule());
    ctx->saved_data.erase("kept");  // free the tensors from which x is recomputed
    const auto saved = ctx->get_saved_variables();
    x_ = saved[0];
    inner_ = saved[1];
  }

  void keep(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& inner) const {
    const bool needs_x = source_.trained() || adapted();
    if (!needs_x) kept_->again = {};
    const bool saves_x = needs_x && !kept_->again && !kept_->adapters.late && !kept_->keeps_codes;
    ctx->save_for_backward({saves_x ? x : at::Tensor(), inner});
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept_);
    source_.keep(ctx, "weight");
  }

  [[nodiscard]] const parallel::TensorGroup& group() const { return *kept_->group; }

  [[nodiscard]] at::Tensor weight() const { return source_.weight(); }

  [[nodiscard]] bool adapted() const { return kept_->adapters.adapters != nullptr; }

  [[nodiscard]] LowRank low_rank() const { return {source_.registry, kept_->adapters}; }

  /// Computes x W^T of all tokens.
  [[nodiscard]] parallel::WholeAndProduct whole_and_output(const at::Tensor& x) const {
    const OperationMark mark(StepWork::matmul_forward);
    if (!kept_->fp8) return parallel::whole_and_product(group(), x, weight().t());
    const at::Tensor whole = group().whole(x);
    return {whole, kept_->fp8->output(whole, weight(), kept_->keeps_codes)};
  }

  /// Computes grad_y W of all tokens.
  [[nodiscard]] parallel::WholeAndProduct whole_and_input_grad(const at::Tensor& grad_y) const {
    const OperationMark mark(StepWork::matmul_dx);
    if (!kept_->fp8) return parallel::whole_and_product(group(), grad_y, weight());
    const at::Tensor whole = group().whole(grad_y);
    return {whole, kept_->fp8->input_grad(whole, weight(), source_.trained())};
  }

  /// Starts the sum of x W^T over the ranks; `onto` is added to the products.
  [[nodiscard]] parallel::ProductSum output_sum(const at::Tensor& x, const at::Tensor& onto) const {
    const OperationMark mark(StepWork::matmul_forward);
    if (!kept_->fp8) return {group(), x, weight().t(), onto};
    return {group(), sum_of(kept_->fp8->output(x, weight(), kept_->keeps_codes), onto)};
  }

  /// Starts the sum of grad_y W over the ranks; `onto` is added to the products.
  [[nodiscard]] parallel::ProductSum input_grad_sum(const at::Tensor& grad_y,
                                                    const at::Tensor& onto) const {
    const OperationMark mark(StepWork::matmul_dx);
    if (!kept_->fp8) return {group(), grad_y, weight(), onto};
    return {group(), sum_of(kept_->fp8->input_grad(grad_y, weight(), source_.trained()), onto)};
  }

  /// Returns the gradient of A x for the backward pass; undefined without adapters.
  [[nodiscard]] at::Tensor inner_grad(const at::Tensor& grad_y) const {
    return adapted() ? low_rank().inner_grad(inner_, grad_y) : at::Tensor();
  }

  /// Schedules the gradients of all trainable weights; the backward pass calls it.
  void give(const at::Tensor& grad_y, const at::Tensor& inner_grad) const {
    if (!source_.trained() && !adapted()) return;
    // With fp8, input_grad() has kept the codes of grad_y^T.
    const at::Tensor grad = kept_->fp8 && !adapted() ? at::Tensor() : grad_y;
    if (const ops::LateResultPtr late = std::exchange(kept_->adapters.late, {})) {
      late->wait_for([linear = *this, grad, inner_grad](const at::Tensor& x) {
        linear.give_for(x, grad, inner_grad);
      });
      return;
    }
    // Recompute x now, because backward frees its inputs.
    const at::Tensor x = kept_->again ? kept_->again() : x_;
    kept_->again = {};
    give_for(x, grad, inner_grad);
  }

 private:
  void give_for(const at::Tensor& x, const at::Tensor& grad, const at::Tensor& inner_grad) const {
    source_.registry->run_or_defer([linear = *this, x, grad, inner_grad] {
      const Source& source = linear.source_;
      if (source.trained()) linear.add_weight_grad(x, grad);
      if (linear.adapted()) linear.low_rank().give(x, linear.inner_, inner_grad, grad);
    });
  }

  static at::Tensor sum_of(const at::Tensor& product, const at::Tensor& onto) {
    return onto.defined() ? onto.add_(product) : product;
  }

  void add_weight_grad(const at::Tensor& x, const at::Tensor& grad_y) const {
    const OperationMark mark(StepWork::matmul_dw);
    if (kept_->fp8) {
      source_.registry->add_gradient(source_.ref, kept_->fp8->weight_grad(x, grad_y));
    } else {
      source_.registry->add_gradient_of_linear(source_.ref, x, grad_y);
    }
  }

  c10::intrusive_ptr<KeptLinear> kept_;
  Source source_;
  at::Tensor x_;
  at::Tensor inner_;
};

struct ColumnParallelLinear : torch::autograd::Function<ColumnParallelLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Linear& linear) {
    const auto [whole, product] = linear.whole_and_output(x);
    at::Tensor inner;
    if (linear.adapted()) {
      inner = linear.low_rank().inner(whole);
      linear.low_rank().add_output(inner, product);
    }
    linear.keep(ctx, whole, inner);
    return product;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const Linear linear(ctx);
    const at::Tensor inner_grad = linear.inner_grad(grads[0]);
    at::Tensor of_adapters;
    if (linear.adapted()) of_adapters = linear.low_rank().input_grad(inner_grad, grads[0]);
    parallel::ProductSum grad_x = linear.input_grad_sum(grads[0], of_adapters);
    linear.give(grads[0], inner_grad);
    return {grad_x.wait(), {}};
  }
};

struct RowParallelLinear : torch::autograd::Function<RowParallelLinear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Linear& linear) {
    at::Tensor inner;
    at::Tensor of_adapters;
    if (linear.adapted()) {
      inner = linear.low_rank().inner(x);
      of_adapters = linear.low_rank().output(inner, x, linear.weight().size(0));
    }
    linear.keep(ctx, x, inner);
    return linear.output_sum(x, of_adapters).wait();
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const Linear linear(ctx);
    const auto [grad_y, grad_x] = linear.whole_and_input_grad(grads[0]);
    const at::Tensor inner_grad = linear.inner_grad(grad_y);
    if (linear.adapted()) linear.low_rank().add_input_grad(inner_grad, grad_x);
    linear.give(grad_y, inner_grad);
    return {grad_x, {}};
  }
};

struct AddBias : torch::autograd::Function<AddBias> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y, const Source& source) {
    source.keep(ctx, "bias");
    return y + source.weight();
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const Source source = Source::kept(ctx, "bias");
    if (source.trained()) {
      const at::Tensor rows = grads[0].reshape({-1, grads[0].size(-1)});
      const auto wide = rows.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      source.give(rows.sum(0, /*keepdim=*/false, wide));
    }
    return {grads[0], {}};
  }
};

at::Tensor gain(const Source& source, const at::Tensor& x) {
  return gain_of(*source.registry, source.ref, x);
}

void keep(AutogradContext* ctx, const ops::NormSetup& setup) {
  keep(ctx, setup.path);
  ctx->saved_data["layer"] = setup.kind == ops::NormKind::layer;
}

/// Returns the setup without eps, which backward does not need.
ops::NormSetup kept_norm(AutogradContext* ctx) {
  return {.kind = ctx->saved_data["layer"].toBool() ? ops::NormKind::layer : ops::NormKind::rms,
          .path = kept_path(ctx)};
}

struct Norm : torch::autograd::Function<Norm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Source& source,
                            const ops::NormSetup& setup, const ops::LateResultPtr& late) {
    auto [y, statistics] = ops::norm_forward(x, gain(source, x), setup);
    ctx->save_for_backward({x, statistics});
    source.keep(ctx, "weight");
    keep(ctx, setup);
    ops::keep(ctx, late);
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const Source source = Source::kept(ctx, "weight");
    const auto saved = ctx->get_saved_variables();
    const ops::LateResultPtr late = ops::awaited_result(ctx);
    const auto out = ops::norm_backward(grads[0], saved[0], gain(source, saved[0]), saved[1],
                                        kept_norm(ctx), late.defined());
    if (late) late->give(out.y);
    source.give(out.weight);
    return {out.x, {}, {}, {}};
  }
};

struct AddNorm : torch::autograd::Function<AddNorm> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& residual,
                             const Source& source, const ops::NormSetup& setup,
                             const ops::LateResultPtr& late) {
    auto [sum, y, statistics] = ops::add_norm_forward(x, residual, gain(source, x), setup);
    ctx->save_for_backward({sum, statistics});
    source.keep(ctx, "weight");
    keep(ctx, setup);
    ops::keep(ctx, late);
    return {sum, y};
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const Source source = Source::kept(ctx, "weight");
    const auto saved = ctx->get_saved_variables();
    const ops::LateResultPtr late = ops::awaited_result(ctx);
    const auto out = ops::add_norm_backward(grads[1], grads[0], saved[0], gain(source, saved[0]),
                                            saved[1], kept_norm(ctx), late.defined());
    if (late) late->give(out.y);
    source.give(out.weight);
    return {out.x, out.x, {}, {}, {}};
  }
};

struct QkvNormRope : torch::autograd::Function<QkvNormRope> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& qkv, std::int64_t num_heads,
                             std::int64_t num_kv_heads, parallel::ParamRegistry* registry,
                             const QkNormWeights& weights, ops::QkNormRope setup, ops::Path path) {
    if (weights.query) {
      const Source query{registry, *weights.query};
      const Source key{registry, *weights.key};
      query.keep(ctx, "query");
      key.keep(ctx, "key");
      const at::Tensor head = qkv.narrow(-1, 0, 2 * setup.tables.cos.size(-1));
      setup.q_weight = gain(query, head);
      setup.k_weight = gain(key, head);
    }
    ctx->save_for_backward({qkv, setup.tables.cos, setup.tables.sin, setup.positions});
    ctx->saved_data["normed"] = weights.query.has_value();
    ctx->saved_data["eps"] = setup.eps;
    keep(ctx, path);
    auto out = ops::qkv_norm_rope_forward(qkv, num_heads, num_kv_heads, setup, path);
    return {out.q, out.k, out.v};
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto saved = ctx->get_saved_variables();
    const bool normed = ctx->saved_data["normed"].toBool();
    ops::QkNormRope setup{
        {}, {}, ctx->saved_data["eps"].toDouble(), {saved[1], saved[2]}, saved[3]};
    if (normed) {
      const at::Tensor& head = grads[0];  // [B, heads, T, D]
      setup.q_weight = gain(Source::kept(ctx, "query"), head);
      setup.k_weight = gain(Source::kept(ctx, "key"), head);
    }
    const auto out =
        ops::qkv_norm_rope_backward(grads[0], grads[1], grads[2], saved[0], setup, kept_path(ctx));
    if (normed) {
      Source::kept(ctx, "key").give(out.k_weight);
      Source::kept(ctx, "query").give(out.q_weight);
    }
    return {out.qkv, {}, {}, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, parallel::ParamRegistry& registry,
                  parallel::WeightRef weight, const RecomputeFn& again,
                  const AdaptersUse& adapters) {
  static const parallel::TensorGroup alone;
  return column_parallel_linear(alone, x, registry, weight, again, adapters);
}

at::Tensor column_parallel_linear(const parallel::TensorGroup& group, const at::Tensor& x,
                                  parallel::ParamRegistry& registry, parallel::WeightRef weight,
                                  const RecomputeFn& again, const AdaptersUse& adapters) {
  return ColumnParallelLinear::apply(
      x, Linear(&group, {&registry, weight}, again, adapters, /*row_parallel=*/false));
}

at::Tensor row_parallel_linear(const parallel::TensorGroup& group, const at::Tensor& x,
                               parallel::ParamRegistry& registry, parallel::WeightRef weight,
                               const RecomputeFn& again, const AdaptersUse& adapters) {
  return RowParallelLinear::apply(
      x, Linear(&group, {&registry, weight}, again, adapters, /*row_parallel=*/true));
}

at::Tensor add_bias(const at::Tensor& y, parallel::ParamRegistry& registry,
                    parallel::WeightRef bias) {
  return AddBias::apply(y, Source{&registry, bias});
}

at::Tensor gain_of(parallel::ParamRegistry& registry, parallel::WeightRef weight,
                   const at::Tensor& x) {
  return weight.count == 0 ? at::ones({x.size(-1)}, x.options()) : registry.weight(weight);
}

at::Tensor residual_sum(const at::Tensor& x, const at::Tensor& branch) {
  const OperationMark mark(StepWork::residual);
  return x + branch;
}

at::Tensor norm(const at::Tensor& x, parallel::ParamRegistry& registry, parallel::WeightRef weight,
                const ops::NormSetup& setup, const ops::LateResultPtr& late) {
  return Norm::apply(x, Source{&registry, weight}, setup, late);
}

SumAndNorm add_norm(const at::Tensor& x, const at::Tensor& residual,
                    parallel::ParamRegistry& registry, parallel::WeightRef weight,
                    const ops::NormSetup& setup, const ops::LateResultPtr& late) {
  auto out = AddNorm::apply(x, residual, Source{&registry, weight}, setup, late);
  return {out[0], out[1]};
}

ops::QueryKeyValue qkv_norm_rope(const at::Tensor& qkv, std::int64_t num_heads,
                                 std::int64_t num_kv_heads, parallel::ParamRegistry& registry,
                                 const QkNormWeights& weights, const ops::QkNormRope& setup,
                                 ops::Path path) {
  auto out = QkvNormRope::apply(qkv, num_heads, num_kv_heads, &registry, weights, setup, path);
  return {out[0], out[1], out[2]};
}

}  // namespace trireme::model::weighted
