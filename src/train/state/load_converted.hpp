#pragma once
#include "checkpoint/load/load.hpp"

namespace trireme {

/// Like load_tensors, but converts floating-point tensors of another dtype, and ignores optimizer
/// state that `state` does not name. Collective.
void load_converted(const Checkpoint& checkpoint, StateDict& state, Communicator& world);

}  // namespace trireme
