#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "parallel/slice.hpp"

namespace trireme::checkpoint {

/// Returns true if `part` is a rectangle inside a tensor of `shape` with a flat range inside the
/// rectangle (may be empty). Does not overflow for hostile numbers.
bool lies_inside(const std::vector<std::int64_t>& shape, const parallel::Slice& part);

/// Returns why `parts` do not cover every element of a tensor of `shape` exactly once; empty if
/// they do. The parts must lie inside the tensor. Used for saved tensors and for tensors to be
/// loaded.
std::string cover_problem(const std::vector<std::int64_t>& shape,
                          const std::vector<parallel::Slice>& parts);

}  // namespace trireme::checkpoint
