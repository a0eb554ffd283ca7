#include "data/batch_phases.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/number.hpp"
#include "core/step_values.hpp"

namespace trireme::data {

BatchPhases::BatchPhases(const std::string& text) {
  constexpr double kMostSamples = 1e12;
  for (const auto& [step, size] : parse_step_values(text)) {
    if (!(size >= 1 && size <= kMostSamples && size == std::floor(size)))
      fail(ErrorKind::usage,
           "has the size {} at step {}, which must be a whole number of 1 or more",
           number_text(size), step);
    phases_.push_back({step, static_cast<std::int64_t>(size)});
  }
  if (phases_.front().after_step != 0)
    fail(ErrorKind::usage, "begins at step {}. The first phase must begin at step 0",
         phases_.front().after_step);
}

std::size_t BatchPhases::index_of(std::int64_t step) const {
  const auto next = std::find_if(phases_.begin() + 1, phases_.end(),
                                 [&](const Phase& phase) { return phase.after_step >= step; });
  return static_cast<std::size_t>(next - phases_.begin()) - 1;
}

std::int64_t BatchPhases::global_batch(std::int64_t step) const {
  return phases_[index_of(step)].global_batch;
}

std::int64_t BatchPhases::samples(std::int64_t step, std::int64_t last) const {
  std::int64_t sum = 0;
  while (step < last) {
    const std::size_t phase = index_of(step + 1);
    const std::int64_t end =
        phase + 1 < phases_.size() ? std::min(last, phases_[phase + 1].after_step) : last;
    sum += (end - step) * phases_[phase].global_batch;
    step = end;
  }
  return sum;
}

std::int64_t BatchPhases::updates(std::int64_t step, std::int64_t samples) const {
  const std::int64_t before = step;
  std::size_t phase = index_of(step + 1);
  for (; phase + 1 < phases_.size() && samples > 0; ++phase) {
    const std::int64_t whole = (phases_[phase + 1].after_step - step) * phases_[phase].global_batch;
    if (samples <= whole) break;
    samples -= whole;
    step = phases_[phase + 1].after_step;
  }
  const std::int64_t size = phases_[phase].global_batch;
  return step - before + (samples > 0 ? (samples - 1) / size + 1 : samples / size);
}

std::int64_t BatchPhases::largest() const {
  return std::ranges::max_element(phases_, {}, &Phase::global_batch)->global_batch;
}

BatchPhases BatchPhases::after(std::int64_t step) const {
  BatchPhases rest(global_batch(step + 1));
  for (const Phase& phase : phases_)
    if (phase.after_step > step)
      rest.phases_.push_back({phase.after_step - step, phase.global_batch});
  return rest;
}

}  // namespace trireme::data
