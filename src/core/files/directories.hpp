#pragma once
#include <filesystem>
#include <optional>

#include "core/files/file.hpp"

/// Directories to write into. All functions throw like fail_to_write() (refusal.hpp).
namespace trireme {

/// Creates the directory and its parents if they do not exist.
void make_directories(const std::filesystem::path& folder);

/// Deletes a file or a directory tree if it exists.
void remove_tree(const std::filesystem::path& path);

/// Returns true if the path is the directory or lies in it. Both may be missing.
bool lies_in(const std::filesystem::path& path, const std::filesystem::path& directory);

/// Locks the directory until the Fd closes, also across a rename; a `shared` lock admits other
/// shared locks. Returns nullopt if another process holds a conflicting lock. On network file
/// systems without directory locks the function succeeds without a lock.
std::optional<Fd> lock_directory(const std::filesystem::path& folder, bool shared = false);

}  // namespace trireme
