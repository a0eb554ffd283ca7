#pragma once
#include <cstddef>

namespace trireme {

/// Raises the soft limit on open files of this process to the hard one, at most to 65,536: some
/// programs that a child may become close every number below the limit. A limit that the system
/// does not raise stays as it is.
void raise_open_files_limit();

/// Returns the number of files that one data set may hold open: a third of what the limit leaves,
/// since a run holds training sets, validation sets and files of its own; from 1 to 256.
std::size_t max_open_shards();

}  // namespace trireme
