#pragma once
#include <cstdint>
#include <string_view>

namespace trireme {

/// Throws Error(resource) unless so many more files and sockets can be opened now. Called before
/// MPI starts: short of descriptors, Open MPI ends the process by itself, with exit code 1.
void require_descriptors(int wanted);

/// Raises this process's soft limit of open files, if need be, so that `needed` more can be opened
/// and `spare` beyond them as far as the hard limit goes. Throws Error(resource) that names `what`
/// when the hard limit is below the need.
void raise_descriptor_limit(std::uint64_t needed, std::uint64_t spare, std::string_view what);

}  // namespace trireme
