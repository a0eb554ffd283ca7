#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "parallel/slice.hpp"

namespace trireme {

/// Standard normal values of the elements of `slice` of a tensor, as doubles, in the
/// slice's order. Element i (global, row-major) is a function of (seed, name, i) only:
/// Philox and Box-Muller, two values a counter. Source: Box and Muller, "A note on the
/// generation of random normal deviates", 1958.
std::vector<double> normal_values(std::uint64_t seed, std::string_view name,
                                  const std::vector<std::int64_t>& shape, const Slice& slice);

/// The same of values in [-1, 1), all equally likely: two a counter.
std::vector<double> uniform_values(std::uint64_t seed, std::string_view name,
                                   const std::vector<std::int64_t>& shape, const Slice& slice);

}  // namespace trireme
