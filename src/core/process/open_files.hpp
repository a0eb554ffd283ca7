#pragma once
#include <cstddef>

namespace trireme {

/// Raises the soft limit on open files to the hard limit, at most to 65,536, because some child
/// programs close every descriptor below the limit. If the system refuses, the limit stays
/// unchanged.
void raise_open_files_limit();

/// Returns the number of files, from 1 to 256, that one data set may keep open. It is a third of
/// the remaining limit, because a run has training sets, validation sets and other files.
std::size_t max_open_shards();

}  // namespace trireme
