#pragma once

namespace trireme {

/// Throws Error(resource) unless so many more files and sockets can be opened now. Called before
/// MPI starts: short of descriptors, Open MPI ends the process by itself, with exit code 1.
void require_descriptors(int wanted);

}  // namespace trireme
