#pragma once
#include <filesystem>
#include <functional>

#include "comm/communicator.hpp"

namespace trireme {

/// Calls `write` on every rank with a temporary directory, which it must fill, and renames that
/// directory to `directory` once. Removes the temporary directory if `write` throws. Collective,
/// and `write` may be collective. Throws Error(usage) if `directory` exists or another process
/// writes it.
void write_whole_folder(const std::filesystem::path& directory, Communicator& world,
                        const std::function<void(const std::filesystem::path&)>& write);

}  // namespace trireme
