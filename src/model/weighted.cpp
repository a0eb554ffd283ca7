#include "model/weighted.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/rms_norm.hpp"
#include "parallel/tensor/token_products.hpp"

namespace trireme::weighted {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// A weight as backward finds it again. The registry outlives every graph over it.
struct Source {
  ParamRegistry* registry;
  WeightRef ref;

  [[nodiscard]] at::Tensor weight() const { return registry->weight(ref); }

  void keep(AutogradContext* ctx, const std::string& name) const {
    ctx->saved_data["registry"] =
        static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(registry));
    ctx->saved_data[name] = c10::List<std::int64_t>(
        {static_cast<std::int64_t>(ref.first), static_cast<std::int64_t>(ref.count)});
  }

  static Source kept(AutogradContext* ctx, const std::string& name) {
    const auto pointer = static_cast<std::intptr_t>(ctx->saved_data["registry"].toInt());
    const auto ref = ctx->saved_data[name].toIntVector();
    return {reinterpret_cast<ParamRegistry*>(pointer),
            {static_cast<ParamId>(ref[0]), static_cast<std::size_t>(ref[1])}};
  }

  [[nodiscard]] bool trained() const { return registry->trained(ref); }

  void give(const at::Tensor& grad) const {
    if (trained()) registry->add_gradient(ref, grad);
  }
};

void keep(AutogradContext* ctx, ops::Path path) {
  ctx->saved_data["fast"] = path == ops::Path::fast;
}

ops::Path kept_path(AutogradContext* ctx) {
  return ctx->saved_data["fast"].toBool() ? ops::Path::fast : ops::Path::plain;
}

/// [.., features] as rows.
at::Tensor as_rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

/// The adapters of one linear, with the arithmetic of all their terms.
struct LowRank {
  ParamRegistry* registry;
  AdaptersUse use;

  [[nodiscard]] at::Tensor dropped(const at::Tensor& x) const {
    return use.dropout ? ops::dropout_apply(x, *use.dropout, use.path) : x;
  }

  /// scale * A x: [tokens, terms * rank].
  [[nodiscard]] at::Tensor inner(const at::Tensor& x) const {
    const at::Tensor a = registry->weight(use.adapters->a);
    return as_rows(dropped(x)).mm(a.t()).mul_(use.adapters->scale);
  }

  /// Calls with each term, its B, its columns of `inner` and its columns of `y`, as rows.
  template <class Call>
  void for_each_term(const at::Tensor& inner, const at::Tensor& y, Call call) const {
    const std::int64_t rank = use.adapters->rank;
    std::int64_t first = 0;
    for (const Adapters::Term& term : use.adapters->terms) {
      const at::Tensor b = registry->weight(term.b);  // [rows, rank]
      call(term, b, inner.narrow(1, first, rank), y.narrow(1, term.first_row, b.size(0)));
      first += rank;
    }
  }

  void add_output(const at::Tensor& inner, const at::Tensor& y) const {
    for_each_term(inner, as_rows(y), [](const auto&, auto& b, const auto& of_a, at::Tensor of_y) {
      of_y.addmm_(of_a, b.t());
    });
  }

  /// Of grad_y: [tokens, terms * rank], that of A x.
  [[nodiscard]] at::Tensor inner_grad(const at::Tensor& inner, const at::Tensor& grad_y) const {
    const at::Tensor grad = at::empty_like(inner);
    for_each_term(grad, as_rows(grad_y), [](const auto&, auto& b, at::Tensor of_a, auto of_y) {
      at::mm_out(of_a, of_y, b);
    });
    return grad.mul_(use.adapters->scale);
  }

  /// [B, T, in] of grad_y [B, T, out].
  [[nodiscard]] at::Tensor input_grad(const at::Tensor& inner_grad,
                                      const at::Tensor& grad_y) const {
    const at::Tensor a = registry->weight(use.adapters->a);
    at::Tensor grad = inner_grad.mm(a).view({grad_y.size(0), grad_y.size(1), a.size(1)});
    return use.dropout ? ops::dropout_apply(grad, *use.dropout, use.path) : grad;
  }

  void give(const at::Tensor& x, const at::Tensor& inner, const at::Tensor& inner_grad,
            const at::Tensor& grad_y) const {
    for_each_term(inner, as_rows(grad_y), [&](auto& term, auto&, auto of_a, auto of_y) {
      registry->add_gradient_of_linear(term.b, of_a, of_y);
    });
    registry->add_gradient_of_linear(use.adapters->a, dropped(x), inner_grad);
  }
};

/// What backward of a linear needs of its input.
struct LinearTape {
  static LowRank low_rank(const Source& source, const AdaptersUse& adapters) {
    return {source.registry, adapters};
  }

  /// `inner`: LowRank's; undefined without adapters. Keeps x only where a gradient is made of it.
  static void keep(AutogradContext* ctx, const Source& source, const TensorGroup* group,
                   const at::Tensor& x, const Again& again, const AdaptersUse& adapters,
                   const at::Tensor& inner) {
    const auto kept = c10::make_intrusive<Kept>();
    kept->group = group;
    kept->adapters = adapters;
    const bool needs_x = source.trained() || adapters.adapters != nullptr;
    if (needs_x) kept->again = again;
    ctx->save_for_backward({needs_x && !again ? x : at::Tensor(), inner});
    ctx->saved_data["kept"] = c10::IValue::make_capsule(kept);
    source.keep(ctx, "weight");
  }

  /// In backward, once: what x is made from is let go with it.
  explicit LinearTape(AutogradContext* ctx)
      : source(Source::kept(ctx, "weight")),
        holder(ctx->saved_data["kept"].toCapsule()),
        saved(ctx->get_saved_variables()) {
    ctx->saved_data.erase("kept");
  }

  [[nodiscard]] const TensorGroup& group() const { return *kept().group; }

  [[nodiscard]] bool adapted() const { return kept().adapters.adapters != nullptr; }

  /// Of grad_y: that of A x, [tokens, terms * rank].
  [[nodiscard]] at::Tensor inner_grad(const at::Tensor& grad_y) const {
    return adapted() ? low_rank(source, kept().adapters).inner_grad(saved[1], grad_y)
                     : at::Tensor();
  }

  /// The adapters' part of x's gradient.
  [[nodiscard]] at::Tensor input_grad(const at::Tensor& inner_grad,
                                      const at::Tensor& grad_y) const {
    if (!adapted()) return {};
    return low_rank(source, kept().adapters).input_grad(inner_grad, grad_y);
  }

  /// Gives the gradients of all that is trained; makes x again where it was not kept.
  void give(const at::Tensor& inner_grad, const at::Tensor& grad_y) const {
    if (!adapted() && !source.trained()) return;
    const at::Tensor x = kept().again ? kept().again() : saved[0];
    if (source.trained()) source.registry->add_gradient_of_linear(source.ref, x, grad_y);
    if (adapted()) low_rank(source, kept().adapters).give(x, saved[1], inner_grad, grad_y);
  }

  Source source;

 private:
  struct Kept : torch::CustomClassHolder {
    const TensorGroup* group = nullptr;  // outlives every graph over it
    Again again;
    AdaptersUse adapters;
  };

  [[nodiscard]] const Kept& kept() const { return static_cast<const Kept&>(*holder); }

  c10::intrusive_ptr<torch::CustomClassHolder> holder;
  tensor_list saved;
};

struct EnterLinear : torch::autograd::Function<EnterLinear> {
  static at::Tensor forward(AutogradContext* ctx, const TensorGroup* group, const at::Tensor& x,
                            const Source& source, const Again& again, const AdaptersUse& adapters) {
    const auto [whole, product] = whole_and_product(*group, x, source.weight().t());
    at::Tensor inner;
    if (adapters.adapters != nullptr) {
      const LowRank low_rank{source.registry, adapters};
      inner = low_rank.inner(whole);
      low_rank.add_output(inner, product);
    }
    LinearTape::keep(ctx, source, group, whole, again, adapters, inner);
    return product;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const LinearTape tape(ctx);
    const at::Tensor inner_grad = tape.inner_grad(grads[0]);
    ProductSum grad_x(tape.group(), grads[0], tape.source.weight(),
                      tape.input_grad(inner_grad, grads[0]));
    tape.give(inner_grad, grads[0]);
    return {{}, grad_x.wait(), {}, {}, {}};
  }
};

struct LinearLeave : torch::autograd::Function<LinearLeave> {
  static at::Tensor forward(AutogradContext* ctx, const TensorGroup* group, const at::Tensor& x,
                            const Source& source, const Again& again, const AdaptersUse& adapters) {
    at::Tensor inner;
    at::Tensor low;
    const at::Tensor weight = source.weight();
    if (adapters.adapters != nullptr) {
      const LowRank low_rank{source.registry, adapters};
      inner = low_rank.inner(x);
      low = at::zeros({x.size(0), x.size(1), weight.size(0)}, x.options());
      low_rank.add_output(inner, low);
    }
    LinearTape::keep(ctx, source, group, x, again, adapters, inner);
    return ProductSum(*group, x, weight.t(), low).wait();
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const LinearTape tape(ctx);
    const auto [grad_y, product] = whole_and_product(tape.group(), grads[0], tape.source.weight());
    const at::Tensor inner_grad = tape.inner_grad(grad_y);
    at::Tensor grad_x = product;
    if (tape.adapted()) grad_x.add_(tape.input_grad(inner_grad, grad_y));
    tape.give(inner_grad, grad_y);
    return {{}, grad_x, {}, {}, {}};
  }
};

struct RmsNorm : torch::autograd::Function<RmsNorm> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Source& source,
                            double eps, ops::Path path) {
    auto [y, rstd] = ops::rms_norm_forward(x, source.weight(), eps, path);
    ctx->save_for_backward({x, rstd});
    source.keep(ctx, "weight");
    keep(ctx, path);
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const Source source = Source::kept(ctx, "weight");
    const auto saved = ctx->get_saved_variables();
    const auto out =
        ops::rms_norm_backward(grads[0], saved[0], source.weight(), saved[1], kept_path(ctx));
    source.give(out.weight);
    return {out.x, {}, {}, {}};
  }
};

struct AddRmsNorm : torch::autograd::Function<AddRmsNorm> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& residual,
                             const Source& source, double eps, ops::Path path) {
    auto [sum, y, rstd] = ops::add_rms_norm_forward(x, residual, source.weight(), eps, path);
    ctx->save_for_backward({sum, rstd});
    source.keep(ctx, "weight");
    keep(ctx, path);
    return {sum, y};
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const Source source = Source::kept(ctx, "weight");
    const auto saved = ctx->get_saved_variables();
    const auto out = ops::add_rms_norm_backward(grads[1], grads[0], saved[0], source.weight(),
                                                saved[1], kept_path(ctx));
    source.give(out.weight);
    return {out.x, out.x, {}, {}, {}};
  }
};

struct QkvNormRope : torch::autograd::Function<QkvNormRope> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& qkv, std::int64_t num_heads,
                             std::int64_t num_kv_heads, ParamRegistry* registry,
                             const QkNormWeights& weights, ops::QkNormRope setup, ops::Path path) {
    if (weights.query) {
      const Source query{registry, *weights.query};
      const Source key{registry, *weights.key};
      query.keep(ctx, "query");
      key.keep(ctx, "key");
      setup.q_weight = query.weight();
      setup.k_weight = key.weight();
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
      setup.q_weight = Source::kept(ctx, "query").weight();
      setup.k_weight = Source::kept(ctx, "key").weight();
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

at::Tensor linear(const at::Tensor& x, ParamRegistry& registry, WeightRef weight,
                  const Again& again, const AdaptersUse& adapters) {
  static const TensorGroup alone;
  return enter_linear(alone, x, registry, weight, again, adapters);
}

at::Tensor enter_linear(const TensorGroup& group, const at::Tensor& x, ParamRegistry& registry,
                        WeightRef weight, const Again& again, const AdaptersUse& adapters) {
  return EnterLinear::apply(&group, x, Source{&registry, weight}, again, adapters);
}

at::Tensor linear_leave(const TensorGroup& group, const at::Tensor& x, ParamRegistry& registry,
                        WeightRef weight, const Again& again, const AdaptersUse& adapters) {
  return LinearLeave::apply(&group, x, Source{&registry, weight}, again, adapters);
}

at::Tensor rms_norm(const at::Tensor& x, ParamRegistry& registry, WeightRef weight, double eps,
                    ops::Path path) {
  return RmsNorm::apply(x, Source{&registry, weight}, eps, path);
}

SumAndNorm add_rms_norm(const at::Tensor& x, const at::Tensor& residual, ParamRegistry& registry,
                        WeightRef weight, double eps, ops::Path path) {
  auto out = AddRmsNorm::apply(x, residual, Source{&registry, weight}, eps, path);
  return {out[0], out[1]};
}

ops::QueryKeyValue qkv_norm_rope(const at::Tensor& qkv, std::int64_t num_heads,
                                 std::int64_t num_kv_heads, ParamRegistry& registry,
                                 const QkNormWeights& weights, const ops::QkNormRope& setup,
                                 ops::Path path) {
  auto out = QkvNormRope::apply(qkv, num_heads, num_kv_heads, &registry, weights, setup, path);
  return {out[0], out[1], out[2]};
}

}  // namespace trireme::weighted
