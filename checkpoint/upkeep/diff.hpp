#pragma once
#include <string>

#include "checkpoint/load/load.hpp"

namespace trireme {

/// What differs between two checkpoints of any layouts, a line each: values, carried files, tensors
/// missing in one, of another dtype or shape, or with other elements (how many, and for floating
/// point the largest absolute difference). Empty: the same state. Verifies both first; throws
/// Error(data). Memory: two windows of 64 MiB.
std::string checkpoint_differences(const Checkpoint& a, const Checkpoint& b);

}  // namespace trireme
