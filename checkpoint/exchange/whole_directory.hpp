#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>

#include "checkpoint/exchange/safetensors.hpp"
#include "comm/communicator.hpp"
#include "core/files/file.hpp"

namespace trireme::checkpoint {

/// Returns the path without a slash at its end: "out/" is out.
std::filesystem::path without_slash(const std::filesystem::path& directory);

/// Creates and locks an empty directory for this process; removes the files that a killed export
/// left. Throws Error(usage) if `target` exists or another process exports to it.
Fd claim_temporary(const std::filesystem::path& temporary, const std::filesystem::path& target);

/// Calls `write` on every rank with a temporary directory, which it must fill, and renames that
/// directory to `directory` once. Removes the temporary directory if `write` throws. Collective,
/// and `write` may be collective. Throws Error(usage) if `directory` exists or another process
/// writes it.
void write_whole_directory(const std::filesystem::path& directory, comm::Communicator& world,
                           const std::function<void(const std::filesystem::path&)>& write);

/// Like write_safetensors and write_safetensors_directory, then reads every tensor back and
/// compares it with its source. Collective. Throws Error(resource) naming the first tensor that
/// differs.
void write_checked_file(const std::filesystem::path& path,
                        std::span<const SafetensorsSource> sources, comm::Communicator& world);
void write_checked_directory(const std::filesystem::path& directory,
                             std::span<const SafetensorsSource> sources, comm::Communicator& world,
                             std::uint64_t max_file_bytes);

}  // namespace trireme::checkpoint
