#pragma once
#include <filesystem>
#include <optional>

#include "core/files/file.hpp"

/// Folders to write into. All throw as fail_to_write (refusal.hpp) when the system refuses.
namespace trireme {

/// Makes the folder and those above it; one that is there is fine.
void make_folders(const std::filesystem::path& folder);

/// Deletes a file or a whole folder; one that is not there is fine.
void remove_tree(const std::filesystem::path& path);

/// Keeps the folder for this process, or `shared` for all that want it so, until the Fd closes, also
/// past a rename; nothing if another process has it otherwise. Some network file systems know no locks of folders: then nobody guards.
std::optional<Fd> lock_folder(const std::filesystem::path& folder, bool shared = false);

}  // namespace trireme
