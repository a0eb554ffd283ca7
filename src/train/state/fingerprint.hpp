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

/// Returns what differs from the fingerprint of a checkpoint: "threads 2 (was 4), binary"; "" if
/// nothing differs; nullopt if the checkpoint has no whole fingerprint.
std::optional<std::string> fingerprint_changes(const Fingerprint& before, const Fingerprint& now);

}  // namespace trireme
