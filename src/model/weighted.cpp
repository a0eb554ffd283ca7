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

  void give(const at::Tensor& grad) const { registry->add_gradient(ref, grad); }
};

void keep(AutogradContext* ctx, ops::Path path) {
  ctx->saved_data["fast"] = path == ops::Path::fast;
}

ops::Path kept_path(AutogradContext* ctx) {
  return ctx->saved_data["fast"].toBool() ? ops::Path::fast : ops::Path::plain;
}

struct KeptAgain : torch::CustomClassHolder {
  explicit KeptAgain(Again given) : make(std::move(given)) {}

  Again make;
};

/// The input of a linear: kept, or made again.
struct Input {
  static void keep(AutogradContext* ctx, const at::Tensor& x, const Again& again) {
    if (again) {
      ctx->saved_data["again"] = c10::IValue::make_capsule(c10::make_intrusive<KeptAgain>(again));
    } else {
      ctx->save_for_backward({x});
    }
  }

  /// In backward; what it is made from is let go.
  static at::Tensor kept(AutogradContext* ctx) {
    const auto found = ctx->saved_data.find("again");
    if (found == ctx->saved_data.end()) return ctx->get_saved_variables()[0];
    const auto holder = found->second.toCapsule();
    ctx->saved_data.erase("again");
    return static_cast<const KeptAgain&>(*holder).make();
  }
};

/// The group as a graph keeps it: it outlives every graph over it.
void keep(AutogradContext* ctx, const TensorGroup* group) {
  ctx->saved_data["group"] = static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(group));
}

const TensorGroup& kept_group(AutogradContext* ctx) {
  return *reinterpret_cast<const TensorGroup*>(
      static_cast<std::intptr_t>(ctx->saved_data["group"].toInt()));
}

struct EnterLinear : torch::autograd::Function<EnterLinear> {
  static at::Tensor forward(AutogradContext* ctx, const TensorGroup* group, const at::Tensor& x,
                            const Source& source, const Again& again) {
    const auto [whole, product] = whole_and_product(*group, x, source.weight().t());
    Input::keep(ctx, whole, again);
    source.keep(ctx, "weight");
    keep(ctx, group);
    return product;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const Source source = Source::kept(ctx, "weight");
    ProductSum grad_x(kept_group(ctx), grads[0], source.weight());
    source.registry->add_gradient_of_linear(source.ref, Input::kept(ctx), grads[0]);
    return {{}, grad_x.wait(), {}, {}};
  }
};

struct LinearLeave : torch::autograd::Function<LinearLeave> {
  static at::Tensor forward(AutogradContext* ctx, const TensorGroup* group, const at::Tensor& x,
                            const Source& source, const Again& again) {
    Input::keep(ctx, x, again);
    source.keep(ctx, "weight");
    keep(ctx, group);
    return ProductSum(*group, x, source.weight().t()).wait();
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const Source source = Source::kept(ctx, "weight");
    const auto [grad_y, grad_x] = whole_and_product(kept_group(ctx), grads[0], source.weight());
    source.registry->add_gradient_of_linear(source.ref, Input::kept(ctx), grad_y);
    return {{}, grad_x, {}, {}};
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
                  const Again& again) {
  static const TensorGroup alone;
  return enter_linear(alone, x, registry, weight, again);
}

at::Tensor enter_linear(const TensorGroup& group, const at::Tensor& x, ParamRegistry& registry,
                        WeightRef weight, const Again& again) {
  return EnterLinear::apply(&group, x, Source{&registry, weight}, again);
}

at::Tensor linear_leave(const TensorGroup& group, const at::Tensor& x, ParamRegistry& registry,
                        WeightRef weight, const Again& again) {
  return LinearLeave::apply(&group, x, Source{&registry, weight}, again);
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
