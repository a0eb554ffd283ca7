#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "parallel/shard.hpp"

namespace trireme {

/// Standard normal values of the elements of `shard` of a tensor, as doubles, in the
/// shard's order. Element i (global, row-major) is a function of (seed, name, i) only:
/// Philox and Box-Muller, two values a block. Source: Box and Muller, "A note on the
/// generation of random normal deviates", 1958.
std::vector<double> normal_values(std::uint64_t seed, std::string_view name,
                                  const std::vector<std::int64_t>& shape, const Shard& shard);

}  // namespace trireme
