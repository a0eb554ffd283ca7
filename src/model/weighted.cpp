#include "model/weighted.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/rms_norm.hpp"

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

struct Linear : torch::autograd::Function<Linear> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const Source& source,
                            const Again& again) {
    if (again) {
      ctx->saved_data["again"] = c10::IValue::make_capsule(c10::make_intrusive<KeptAgain>(again));
    } else {
      ctx->save_for_backward({x});
    }
    source.keep(ctx, "weight");
    return at::linear(x, source.weight());
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const Source source = Source::kept(ctx, "weight");
    const at::Tensor grad_x = grads[0].matmul(source.weight());
    const at::Tensor x = input(ctx);
    source.registry->add_gradient_of_linear(source.ref, x, grads[0]);
    return {grad_x, {}, {}};
  }

  /// In backward; what it is made from is let go.
  static at::Tensor input(AutogradContext* ctx) {
    const auto kept = ctx->saved_data.find("again");
    if (kept == ctx->saved_data.end()) return ctx->get_saved_variables()[0];
    const auto holder = kept->second.toCapsule();
    ctx->saved_data.erase("again");
    return static_cast<const KeptAgain&>(*holder).make();
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
  return Linear::apply(x, Source{&registry, weight}, again);
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
