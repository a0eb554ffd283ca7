#include <array>

#include "comm/nccl/nccl_backend.hpp"
#include "core/error.hpp"

/// This file is for builds without NCCL. The name "nccl" is still known, so that the error can say
/// what is missing.
namespace trireme::comm {
namespace {

[[noreturn]] void absent() {
  fail(
      ErrorKind::usage,
      "comm backend 'nccl' is not in this build: NCCL and the CUDA runtime were not found at configure time; use 'mpi' and train.device = cpu, or set TRIREME_NCCL_ROOT and TRIREME_CUDA_ROOT and build again");
}

constexpr std::array<CommBackend, 1> kBackends{
    {{"nccl", "NVIDIA GPUs (not in this build)",
      [](const LaunchInfo&, const CommOptions&) -> std::unique_ptr<Communicator> { absent(); }}}};

}  // namespace

std::span<const CommBackend> nccl_backends() {
  return kBackends;
}

}  // namespace trireme::comm
