#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/factory.hpp"
#include "comm/options.hpp"
#include "comm/session.hpp"

/// The interface of the GPU backend for trainers. It needs no NCCL or CUDA headers. Link
/// trireme::comm_nccl.
namespace trireme::comm {

struct NcclApi;

/// Returns the table entry "nccl" for make_world(..., extra). Without NCCL, creating the
/// communicator throws Error(usage).
std::span<const CommBackend> nccl_backends();

/// The GPUs of one rank, gathered from all ranks for comparison.
struct GpuUse {
  int node = 0;
  std::string hostname;
  std::string used;                  // PCI bus id of the device in use
  std::vector<std::string> visible;  // PCI bus ids of all visible devices
};

/// One message about GPUs that several ranks share, and one about visible GPUs that no rank uses. A
/// message is empty if there are no such GPUs.
struct GpuReport {
  std::string shared;
  std::string idle;
};

GpuReport compare_gpus(const std::vector<GpuUse>& ranks);

/// Creates the communicator over the ranks of `bootstrap` (MPI, or threads in tests). `bootstrap`
/// transfers NCCL's unique ids and performs splits and barriers. Sets the calling thread's device.
/// Throws Error(resource) if two ranks share a GPU and Error(comm) if NCCL fails. Rank 0 warns
/// about an unused visible GPU.
std::unique_ptr<Communicator> make_nccl_world(const NcclApi& api, const LaunchInfo& launch,
                                              std::unique_ptr<Communicator> bootstrap,
                                              const CommOptions& options);

}  // namespace trireme::comm
