#pragma once
#include <ATen/ATen.h>

#include <map>
#include <optional>
#include <string>

#include "comm/communicator.hpp"

namespace trireme::train {

/// Everything except the configuration that the bits of a result depend on, by name: "binary"
/// (hash), "libraries" (hash of names and sizes of the loaded LibTorch, MPI, NCCL and CUDA
/// libraries), "torch", "threads", "isa", "device", "layout".
using Fingerprint = std::map<std::string, std::string>;

/// Returns the fingerprint of rank 0, on all ranks. `layout`: the mesh as text. Throws
/// Error(usage) on all ranks if a rank runs another binary; rank 0 warns about other differences.
/// Collective.
Fingerprint take_fingerprint(comm::Communicator& world, at::Device device,
                             const std::string& layout);

/// Returns the differences between two fingerprints, such as "threads 2 (was 4), binary"; "" if
/// there are none; nullopt if the checkpoint lacks an entry.
std::optional<std::string> fingerprint_changes(const Fingerprint& before, const Fingerprint& now);

}  // namespace trireme::train
