#pragma once
#include <functional>

#include "comm/communicator.hpp"
#include "parallel/param_registry.hpp"

/// Whole tensors out of what the ranks hold.
namespace trireme::testing {

/// Every logical element of every parameter, in id order, as fp64. `part_of(unit)`: this rank's
/// part of a unit, as ParamRegistry::main_part. Collective over all ranks.
inline at::Tensor gathered(const ParamRegistry& registry, Communicator& world,
                           const std::function<at::Tensor(std::size_t)>& part_of) {
  const UnitLayout& layout = registry.layout();
  std::vector<std::int64_t> begins{0};
  for (ParamId id = 0; id < registry.size(); ++id)
    begins.push_back(begins.back() + Slice::whole(registry.spec(id).shape).count());
  at::Tensor all = at::zeros({begins.back()}, at::kDouble);
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
    const at::Tensor part = part_of(unit).to(at::kDouble);
    for (const ParamSpan& span : layout.owned_spans(unit)) {
      const std::vector<std::int64_t>& shape = registry.spec(span.id).shape;
      Slice slice = layout.param(span.id).slice;
      slice.flat_begin = span.first;
      slice.flat_end = span.first + span.count;
      for (const SliceRun& run : intersect(shape, slice, Slice::whole(shape))) {
        const std::int64_t from = span.begin - layout.part(unit).begin + run.source_index;
        all.narrow(0, begins[span.id] + run.target_index, run.count)
            .copy_(part.narrow(0, from, run.count));
      }
    }
  }
  world
      .all_reduce({.input = all.const_data_ptr(),
                   .output = all.mutable_data_ptr(),
                   .count = static_cast<std::uint64_t>(all.numel()),
                   .dtype = DType::f64,
                   .op = ReduceOp::sum,
                   .tag = "gathered"})
      ->wait();
  return all;
}

inline at::Tensor gathered_weights(const ParamRegistry& registry, Communicator& world) {
  return gathered(registry, world, [&](std::size_t unit) { return registry.main_part(unit); });
}

inline at::Tensor gathered_grads(const ParamRegistry& registry, Communicator& world) {
  return gathered(registry, world, [&](std::size_t unit) { return registry.grad_part(unit); });
}

/// One of them, in the order of all.
struct Param {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t count = 0;

  [[nodiscard]] at::Tensor of(const at::Tensor& flat) const { return flat.narrow(0, begin, count); }
};

inline std::vector<Param> params_of(const ParamRegistry& registry) {
  std::vector<Param> params;
  std::int64_t begin = 0;
  for (ParamId id = 0; id < registry.size(); ++id) {
    const std::int64_t count = Slice::whole(registry.spec(id).shape).count();
    params.push_back({registry.spec(id).name, begin, count});
    begin += count;
  }
  return params;
}

}  // namespace trireme::testing
