#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "parallel/slice.hpp"

namespace trireme::parallel {

/// Returns standard normal values for the elements of `slice` of a tensor, in the slice's order.
/// Element i (global, row-major) depends only on (seed, name, i). A Philox counter gives two values
/// through the Box-Muller transform. Source: Box and Muller, "A note on the generation of random
/// normal deviates", 1958.
std::vector<double> normal_values(std::uint64_t seed, std::string_view name,
                                  const std::vector<std::int64_t>& shape, const Slice& slice);

/// Like normal_values(), with uniform values in [-1, 1).
std::vector<double> uniform_values(std::uint64_t seed, std::string_view name,
                                   const std::vector<std::int64_t>& shape, const Slice& slice);

}  // namespace trireme::parallel
