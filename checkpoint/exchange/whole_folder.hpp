#pragma once
#include <filesystem>
#include <functional>

#include "comm/communicator.hpp"

namespace trireme {

/// Collective: makes `folder` by one rename of a temporary one beside it, which `write` fills; every
/// rank calls it, and it is collective itself. Nothing stays where it throws. Throws Error(usage) if
/// `folder` exists or another process is writing it.
void write_whole_folder(const std::filesystem::path& folder, Communicator& world,
                        const std::function<void(const std::filesystem::path&)>& write);

}  // namespace trireme
