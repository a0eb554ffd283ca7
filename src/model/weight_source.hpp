#pragma once
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <string>

#include "parallel/param_registry.hpp"

namespace trireme::model::weighted {

/// Stores in the autograd context which weight a forward pass used, so that backward can request
/// the weight again. The registry outlives every graph that uses the weight.
struct Source {
  parallel::ParamRegistry* registry;
  parallel::WeightRef ref;

  [[nodiscard]] at::Tensor weight() const { return registry->weight(ref); }

  void keep(torch::autograd::AutogradContext* ctx, const std::string& name) const {
    ctx->saved_data["registry"] =
        static_cast<std::int64_t>(reinterpret_cast<std::intptr_t>(registry));
    ctx->saved_data[name] = c10::List<std::int64_t>(
        {static_cast<std::int64_t>(ref.first), static_cast<std::int64_t>(ref.count)});
  }

  static Source kept(torch::autograd::AutogradContext* ctx, const std::string& name) {
    const auto pointer = static_cast<std::intptr_t>(ctx->saved_data["registry"].toInt());
    const auto ref = ctx->saved_data[name].toIntVector();
    return {reinterpret_cast<parallel::ParamRegistry*>(pointer),
            {static_cast<parallel::ParamId>(ref[0]), static_cast<std::size_t>(ref[1])}};
  }

  [[nodiscard]] bool trained() const { return ref.count > 0 && registry->trained(ref); }

  void give(const at::Tensor& grad) const {
    if (trained())
      registry->run_or_defer(
          [source = *this, grad] { source.registry->add_gradient(source.ref, grad); });
  }
};

}  // namespace trireme::model::weighted
