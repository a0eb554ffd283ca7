#include "optim/param_ranges.hpp"

namespace trireme::optim {

std::vector<ParamRange> param_ranges(const parallel::ParamRegistry& registry) {
  const parallel::UnitLayout& layout = registry.layout();
  std::vector<ParamRange> ranges;
  for (const std::size_t unit : layout.trainable_units()) {
    const parallel::IndexRange part = layout.part(unit);
    const std::vector<parallel::ParamSpan> spans = layout.spans(unit, part);
    for (std::size_t i = 0; i < spans.size(); ++i) {
      const parallel::ParamSpan& span = spans[i];
      parallel::Slice slice = layout.param(span.id).slice;
      slice.flat_begin = span.first;
      slice.flat_end = span.first + span.count;
      const std::int64_t end = i + 1 < spans.size() ? spans[i + 1].begin : part.end;
      ranges.push_back(
          {span.id, std::move(slice), {unit, span.begin - part.begin, end - span.begin}});
    }
  }
  return ranges;
}

std::vector<UpdateRange> update_ranges(const parallel::ParamRegistry& registry,
                                       std::span<const ParamRange> params) {
  std::vector<UpdateRange> ranges;
  for (const auto& [id, slice, elements] : params) {
    const parallel::ParamSpec& spec = registry.spec(id);
    if (spec.sign_rate > 0) continue;
    FlatRange* last = ranges.empty() ? nullptr : &ranges.back().elements;
    if (last != nullptr && ranges.back().decay == spec.decay && last->unit == elements.unit &&
        last->begin + last->count == elements.begin) {
      last->count += elements.count;
    } else {
      ranges.push_back({elements, spec.decay});
    }
  }
  return ranges;
}

SignStep::SignStep(const parallel::ParamRegistry& registry) {
  for (const ParamRange& range : param_ranges(registry)) {
    const double rate = registry.spec(range.id).sign_rate;
    if (rate == 0) continue;
    targets_.push_back({range.elements.weights(registry), range.elements.grads(registry), rate});
  }
}

void SignStep::step() const {
  const at::NoGradGuard no_grad;
  for (const Target& target : targets_) target.weights.sub_(target.grads.sign(), target.rate);
}

}  // namespace trireme::optim
