#pragma once
#include "checkpoint/load/load.hpp"

namespace trireme {

/// Collective: as load_tensors, but floats of another dtype are converted, and moments that
/// `state` does not name stay unread.
void load_converted(const Checkpoint& checkpoint, StateDict& state, Communicator& world);

}  // namespace trireme
