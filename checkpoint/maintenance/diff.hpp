#pragma once
#include <string>

#include "checkpoint/load/load.hpp"

namespace trireme::checkpoint {

/// Verifies two checkpoints of any layouts and returns one line per difference; empty if the state
/// is the same. Compares values, copied files and tensors: missing in one checkpoint, another dtype
/// or shape, or different elements (their number and, for floating point, the largest absolute
/// difference). Needs two windows of 64 MiB in memory. Throws Error(data) for a damaged checkpoint.
std::string checkpoint_differences(const Checkpoint& a, const Checkpoint& b);

}  // namespace trireme::checkpoint
