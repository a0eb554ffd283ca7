#pragma once
#include <cstdint>
#include <string_view>

namespace trireme::comm {

/// Throws Error(resource) unless `wanted` more files and sockets can be opened now. Call it before
/// MPI starts, because Open MPI ends the process with exit code 1 if it runs out of descriptors.
void require_descriptors(int wanted);

/// Raises the soft limit on open files so that `needed` more can be opened, plus `spare` if the
/// hard limit allows it. Throws Error(resource) with `what` if `needed` exceeds the hard limit.
void raise_descriptor_limit(std::uint64_t needed, std::uint64_t spare, std::string_view what);

}  // namespace trireme::comm
