#include "optim/weight_average.hpp"

namespace trireme::optim {

WeightAverage::WeightAverage(parallel::ParamRegistry& registry, double decay)
    : registry_(registry), decay_(decay), flat_(registry.make_state()) {}

void WeightAverage::reset() {
  const at::NoGradGuard no_grad;
  for (const std::size_t unit : registry_.layout().trainable_units())
    registry_.part_of(flat_, unit).copy_(registry_.master_part(unit));
}

void WeightAverage::update() {
  const at::NoGradGuard no_grad;
  for (const std::size_t unit : registry_.layout().trainable_units())
    registry_.part_of(flat_, unit).lerp_(registry_.master_part(unit), 1 - decay_);
}

void WeightAverage::swap() {
  const at::NoGradGuard no_grad;
  for (const std::size_t unit : registry_.layout().trainable_units()) {
    const at::Tensor average = registry_.part_of(flat_, unit);
    const at::Tensor weights = registry_.master_part(unit);
    const at::Tensor before = weights.clone();
    weights.copy_(average);
    average.copy_(before);
  }
  registry_.refresh_trainable();
}

}  // namespace trireme::optim
