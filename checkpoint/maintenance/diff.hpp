#pragma once
#include <string>

#include "checkpoint/load/load.hpp"

namespace trireme::checkpoint {

/// Verifies two checkpoints, which may have different layouts, and returns one line per difference;
/// "" if the states are equal. Compares values, copied files and tensors. A tensor may be missing
/// in one checkpoint, have another dtype or shape, or have different elements; the line then gives
/// the number of different elements and, for floating point, the largest absolute difference. Needs
/// 128 MiB of memory: a buffer of 64 MiB for each checkpoint. Throws Error(data) for a damaged
/// checkpoint.
std::string checkpoint_differences(const Checkpoint& a, const Checkpoint& b);

}  // namespace trireme::checkpoint
