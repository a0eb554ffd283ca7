#include "parallel/units/gathered.hpp"

#include <cstring>
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

namespace {

/// The elements of a parameter that this rank owns.
struct OwnedElements {
  ParamSpan span;
  std::size_t unit = 0;
};

/// Copies the owned elements of a parameter into `whole`, a flat host tensor of the whole parameter.
void put_owned(const ParamRegistry& parts, const OwnedElements& owned, const at::Tensor& whole) {
  const UnitLayout& layout = parts.layout();
  const ParamSpan& span = owned.span;
  const std::vector<std::int64_t>& shape = parts.spec(span.id).shape;
  const at::Tensor elements = parts.master_part(owned.unit)
                                  .narrow(0, span.begin - layout.part(owned.unit).begin, span.count)
                                  .to(at::kCPU, whole.scalar_type())
                                  .contiguous();
  Slice slice = layout.param(span.id).slice;
  slice.flat_begin = span.first;
  slice.flat_end = span.first + span.count;
  const std::size_t size = whole.element_size();
  const auto* from = static_cast<const char*>(elements.const_data_ptr());
  auto* to = static_cast<char*>(whole.mutable_data_ptr());
  for (const SliceRun& run : intersect(shape, slice, Slice::whole(shape))) {
    std::memcpy(to + static_cast<std::size_t>(run.target_index) * size,
                from + static_cast<std::size_t>(run.source_index) * size,
                static_cast<std::size_t>(run.count) * size);
  }
}

}  // namespace

void copy_whole_weights(const ParamRegistry& parts, ParamRegistry& whole) {
  std::map<std::string_view, std::vector<OwnedElements>> owned;
  for (std::size_t unit = 0; unit < parts.layout().units().size(); ++unit) {
    if (!parts.master_part(unit).defined()) continue;
    for (const ParamSpan& span : parts.layout().owned_spans(unit))
      owned[parts.spec(span.id).name].push_back({span, unit});
  }
  const bool is_fp64 = whole.main(0).scalar_type() == at::kDouble;
  const auto options = at::TensorOptions().dtype(is_fp64 ? at::kDouble : at::kFloat);
  for (ParamId id = 0; id < whole.size(); ++id) {
    const std::vector<std::int64_t>& shape = whole.spec(id).shape;
    const at::Tensor elements = at::zeros({Slice::whole(shape).count()}, options);
    for (const OwnedElements& one : owned[whole.spec(id).name]) put_owned(parts, one, elements);
    const at::Tensor sum = elements.to(parts.device());
    all_reduce(parts.mesh().world(), sum, comm::ReduceOp::sum, "whole weights")->wait();
    whole.main(id).copy_(sum.view(shape));
  }
  whole.refresh_weights();
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
