#include <cmath>

#include "model/block.hpp"

namespace trireme::model {

parallel::InitDistribution Block::init_of(BlockLinear which) const {
  using enum parallel::InitDistribution::Kind;
  const ModelConfig& c = context_.config;
  const bool is_projection = which == BlockLinear::o || which == BlockLinear::down;
  if (c.zero_projections && is_projection) return {zeros};
  if (c.init == "linear") {
    const auto inputs =
        static_cast<double>(block_linears(c).at(static_cast<std::size_t>(which)).columns);
    return {uniform, 1 / std::sqrt(inputs)};
  }
  if (c.init != "uniform") return {normal};
  const double bound = std::sqrt(3.0 / static_cast<double>(c.hidden_size));
  const bool is_first_of_mlp = which == BlockLinear::gate || which == BlockLinear::up;
  return {uniform, is_first_of_mlp ? 0.4 * bound : bound};
}

}  // namespace trireme::model
