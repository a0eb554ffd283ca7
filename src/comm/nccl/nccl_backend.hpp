#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/factory.hpp"
#include "comm/options.hpp"
#include "comm/session.hpp"

/// The GPU backend as the trainer sees it; no NCCL or CUDA header here. Links trireme::comm_nccl.
namespace trireme {

struct NcclApi;

/// The table entry for make_world(..., extra): one row "nccl" in every build; without NCCL making
/// it is Error(usage).
std::span<const CommBackend> nccl_backends();

/// One rank's view, gathered from all ranks to compare.
struct GpuUse {
  int node = 0;
  std::string hostname;
  std::string used;                  // PCI bus id of the device it uses
  std::vector<std::string> visible;  // PCI bus ids it could use
};

/// Two ranks on one GPU and visible GPUs that nobody uses, in words; empty when all is well.
struct GpuReport {
  std::string shared;
  std::string idle;
};

GpuReport compare_gpus(const std::vector<GpuUse>& ranks);

/// The communicator over `bootstrap`'s ranks (MPI, or threads in tests), which carries unique ids,
/// splits and barriers and is owned from here on. Sets the calling thread's device. Throws
/// Error(resource) if two ranks share a GPU and Error(comm) if NCCL fails; an idle visible GPU is a
/// warning of rank 0.
std::unique_ptr<Communicator> make_nccl_world(const NcclApi& api, const LaunchInfo& launch,
                                              std::unique_ptr<Communicator> bootstrap,
                                              const CommOptions& options);

}  // namespace trireme
