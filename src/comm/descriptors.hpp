#pragma once
#include <cstdint>
#include <string_view>

namespace trireme::comm {

/// Throws Error(resource) if this process cannot open `wanted` more files and sockets. Call it
/// before MPI starts, because Open MPI ends the process with exit code 1 if it runs out of
/// descriptors.
void require_descriptors(int wanted);

/// Raises the soft limit on open files, so that this process can open `needed` more files, and
/// `spare` additional ones if the hard limit allows it. Throws Error(resource) with `what` if the
/// hard limit does not allow `needed` more files.
void raise_descriptor_limit(std::uint64_t needed, std::uint64_t spare, std::string_view what);

}  // namespace trireme::comm
