#pragma once
#include <filesystem>
#include <optional>

#include "core/files/file.hpp"

/// Directories to write into. All functions throw like fail_to_write() (refusal.hpp) if the system
/// refuses.
namespace trireme {

/// Creates the directory and its parents if they do not exist.
void make_folders(const std::filesystem::path& folder);

/// Deletes a file or a directory tree if it exists.
void remove_tree(const std::filesystem::path& path);

/// Locks the directory for this process, or for all processes that ask for a `shared` lock, until
/// the Fd closes, also across a rename. Returns nullopt if another process holds a conflicting
/// lock. Some network file systems have no directory locks; the function then succeeds without a
/// lock.
std::optional<Fd> lock_folder(const std::filesystem::path& folder, bool shared = false);

}  // namespace trireme
