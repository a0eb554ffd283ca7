#pragma once
#include <cstdint>
#include <filesystem>
#include <span>

#include "checkpoint/exchange/safetensors.hpp"

/// Like write_safetensors and write_safetensors_folder, then reads every tensor back and compares
/// it with its source. Collective. Throws Error(resource) naming the first tensor that differs.
namespace trireme {

void write_checked_file(const std::filesystem::path& path,
                        std::span<const SafetensorsSource> sources, Communicator& world);
void write_checked_folder(const std::filesystem::path& directory,
                          std::span<const SafetensorsSource> sources, Communicator& world,
                          std::uint64_t max_file_bytes);

}  // namespace trireme
