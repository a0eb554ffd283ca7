#include "parallel/units/gathered.hpp"

#include "parallel/collectives.hpp"

namespace trireme {

at::Tensor gathered(const ParamRegistry& registry, Communicator& world,
                    const std::function<at::Tensor(std::size_t)>& part_of) {
  const UnitLayout& layout = registry.layout();
  std::vector<std::int64_t> begins{0};
  for (ParamId id = 0; id < registry.size(); ++id)
    begins.push_back(begins.back() + Slice::whole(registry.spec(id).shape).count());
  at::Tensor all = at::zeros({begins.back()}, at::kDouble);
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
    at::Tensor part = part_of(unit);
    if (!part.defined()) continue;
    part = part.to(at::kCPU, at::kDouble);
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
  const at::Tensor sum = all.to(registry.device());
  all_reduce(world, sum, ReduceOp::sum, "gathered")->wait();
  return sum.to(at::kCPU);
}

at::Tensor gathered_trained(const ParamRegistry& registry, Communicator& world,
                            const std::function<at::Tensor(std::size_t)>& part_of) {
  return gathered(registry, world, [&](std::size_t unit) {
    return registry.layout().units()[unit].frozen ? at::Tensor() : part_of(unit);
  });
}

at::Tensor gathered_weights(const ParamRegistry& registry, Communicator& world) {
  return gathered(registry, world, [&](std::size_t unit) { return registry.main_part(unit); });
}

at::Tensor gathered_grads(const ParamRegistry& registry, Communicator& world) {
  return gathered_trained(registry, world, [&](auto unit) { return registry.grad_part(unit); });
}

std::vector<GatheredParam> gathered_params(const ParamRegistry& registry) {
  std::vector<GatheredParam> params;
  std::int64_t begin = 0;
  for (ParamId id = 0; id < registry.size(); ++id) {
    const std::int64_t count = Slice::whole(registry.spec(id).shape).count();
    params.push_back({registry.spec(id).name, begin, count});
    begin += count;
  }
  return params;
}

}  // namespace trireme
