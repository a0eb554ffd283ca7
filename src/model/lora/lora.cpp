#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "model/block.hpp"

namespace trireme::model {

weighted::Adapters declare_adapters(parallel::ParamRegistry& registry, const LoraConfig& config,
                                    const ModelConfig& model, const parallel::TensorGroup& tensor,
                                    const std::string& prefix,
                                    std::span<const AdaptedLinear> linears) {
  const LinearShapes shapes = block_linears(model);
  const std::array<bool, 7> targets = lora_targets(config, model);
  const auto is_target = [&](const AdaptedLinear& one) {
    return targets.at(static_cast<std::size_t>(one.which));
  };
  const auto declare = [&](const AdaptedLinear& one, bool is_a, bool fused) {
    const LinearShape& shape = shapes.at(static_cast<std::size_t>(one.which));
    const double bound = 1 / std::sqrt(static_cast<double>(shape.columns));
    parallel::ParamSpec spec{
        formatted("{}{}.lora_{}.weight", prefix, shape.module, is_a ? 'A' : 'B')};
    spec.shape =
        is_a ? std::vector{config.rank, shape.columns} : std::vector{shape.rows, config.rank};
    spec.init = {
        is_a ? parallel::InitDistribution::Kind::uniform : parallel::InitDistribution::Kind::zeros,
        bound};
    spec.partial = one.split.dim != (is_a ? 1 : 0);
    if (!spec.partial) spec.split = one.split;
    spec.fuse_with_previous = fused;
    return registry.declare(std::move(spec));
  };
  weighted::Adapters adapters;
  for (const AdaptedLinear& one : linears) {
    if (!is_target(one)) continue;
    const bool first = adapters.a.count == 0;
    const parallel::ParamId id = declare(one, /*is_a=*/true, /*fused=*/!first);
    adapters.a = {first ? id : adapters.a.first, adapters.a.count + 1};
  }
  std::int64_t row = 0;
  for (const AdaptedLinear& one : linears) {
    const std::int64_t first_row = row;
    if (one.split.dim == 0) {
      row += parallel::split_range(shapes.at(static_cast<std::size_t>(one.which)).rows, one.split,
                                   tensor.size(), tensor.rank())
                 .count();
    }
    if (!is_target(one)) continue;
    adapters.terms.push_back({{declare(one, /*is_a=*/false, /*fused=*/false)}, first_row});
  }
  if (adapters.terms.empty()) return {};
  adapters.rank = config.rank;
  adapters.scale = config.scale();
  return adapters;
}

}  // namespace trireme::model
