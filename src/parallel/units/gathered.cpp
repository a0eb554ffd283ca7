#include "parallel/units/gathered.hpp"

#include <map>
#include <string_view>

#include "parallel/collectives.hpp"

namespace trireme::parallel {

at::Tensor Gathering::all(const std::function<at::Tensor(std::size_t)>& part_of) const {
  const UnitLayout& layout = registry_.layout();
  std::map<std::string_view, std::int64_t> begins;
  for (const GatheredParam& param : params_) begins[param.name] = param.begin;
  at::Tensor all = at::zeros({params_.back().begin + params_.back().count}, at::kDouble);
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
    at::Tensor part = part_of(unit);
    if (!part.defined()) continue;
    part = part.to(at::kCPU, at::kDouble);
    for (const ParamSpan& span : layout.owned_spans(unit)) {
      const ParamSpec& spec = registry_.spec(span.id);
      Slice slice = layout.param(span.id).slice;
      slice.flat_begin = span.first;
      slice.flat_end = span.first + span.count;
      for (const SliceRun& run : intersect(spec.shape, slice, Slice::whole(spec.shape))) {
        const std::int64_t from = span.begin - layout.part(unit).begin + run.source_index;
        all.narrow(0, begins.at(spec.name) + run.target_index, run.count)
            .copy_(part.narrow(0, from, run.count));
      }
    }
  }
  const at::Tensor sum = all.to(registry_.device());
  all_reduce(world_, sum, comm::ReduceOp::sum, "gathered")->wait();
  return sum.to(at::kCPU);
}

at::Tensor Gathering::trained(const std::function<at::Tensor(std::size_t)>& part_of) const {
  return all([&](std::size_t unit) {
    return registry_.layout().units()[unit].frozen ? at::Tensor() : part_of(unit);
  });
}

at::Tensor Gathering::weights() const {
  return all([this](std::size_t unit) { return registry_.master_part(unit); });
}

at::Tensor Gathering::grads() const {
  return trained([this](std::size_t unit) { return registry_.grad_part(unit); });
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

}  // namespace trireme::parallel
