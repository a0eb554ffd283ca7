#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

#include "checkpoint/exchange/safetensors.hpp"

/// Collective: as write_safetensors and write_safetensors_folder; then every tensor is read back and
/// compared with what its source gives anew. Throws Error(resource) naming the first that differs.
namespace trireme {

void write_checked_file(const std::filesystem::path& path,
                        std::span<const SafetensorsSource> sources, Communicator& world);
void write_checked_folder(const std::filesystem::path& folder,
                          std::span<const SafetensorsSource> sources, Communicator& world,
                          std::uint64_t max_file_bytes);

}  // namespace trireme
