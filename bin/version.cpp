#include "bin/version.hpp"

#include "core/error.hpp"

namespace trireme {

std::string version_text() {
  return formatted(
      "trireme {}\n  compiler  g++ {}\n  LibTorch  {}\n  MPI       {}\n  NCCL      {}\n",
      TRIREME_VERSION, __VERSION__, TRIREME_TORCH_VERSION, TRIREME_MPI_VERSION, TRIREME_NCCL_STATE);
}

}  // namespace trireme
