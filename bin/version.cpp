#include "bin/version.hpp"

#include "core/error.hpp"

namespace trireme {

std::string version_text() {
  return cat("trireme ", TRIREME_VERSION, "\n  compiler  g++ ", __VERSION__, "\n  LibTorch  ",
             TRIREME_TORCH_VERSION, "\n  MPI       ", TRIREME_MPI_VERSION, "\n  NCCL      ",
             TRIREME_NCCL_STATE, "\n");
}

}  // namespace trireme
