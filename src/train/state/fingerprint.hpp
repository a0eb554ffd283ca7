#pragma once
#include <ATen/ATen.h>

#include <map>
#include <optional>
#include <string>

#include "comm/communicator.hpp"

namespace trireme {

/// What the bits of a run depend on beside its configuration: "binary" (hash),
/// "libraries" (hash of names and sizes of LibTorch, MPI, NCCL, CUDA as loaded),
/// "torch", "threads", "isa", "device", "layout".
using Fingerprint = std::map<std::string, std::string>;

/// Collective: rank 0's, on all ranks. `layout`: of the mesh, as text. Throws Error(usage) on all
/// ranks if one runs another binary; rank 0 warns if one differs in anything else.
Fingerprint take_fingerprint(Communicator& world, at::Device device, const std::string& layout);

/// As values of a checkpoint: "fingerprint.binary", ...
void put_fingerprint(std::map<std::string, std::string>& values, const Fingerprint& fingerprint);

/// What differs from the fingerprint in a checkpoint with these values: "threads 2 (was 4),
/// binary";
/// "" if nothing. None: the checkpoint has no fingerprint.
std::optional<std::string> fingerprint_changes(const std::map<std::string, std::string>& values,
                                               const Fingerprint& now);

}  // namespace trireme
