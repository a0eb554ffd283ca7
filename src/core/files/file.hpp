#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/unique_handle.hpp"

/// Files are published whole: written under a temporary name, fsynced, renamed, the folder fsynced.
/// When the system refuses, all throw the Error that refusal.hpp says (naming path and errno), and
/// Error(data) for bad content.
namespace trireme {

struct FdTraits {
  using Raw = int;

  static Raw null() noexcept { return -1; }

  static void close(Raw fd) noexcept;
};

using Fd = UniqueHandle<FdTraits>;

/// The whole file. Error(data) if it is absent, larger than `max_bytes`, or no regular file: a pipe
/// left in a folder must not hold a run for ever.
std::string read_file(const std::filesystem::path& path,
                      std::size_t max_bytes = std::size_t{1} << 32);

/// As read_file, for what a person names: also from a pipe (`--config <(...)`).
std::string read_text(const std::filesystem::path& path, std::size_t max_bytes);

/// Replaces `path` in one step; a reader sees the old or the new content, never a part. Mode 0644
/// less umask. On an error the old content stays and nothing else is left behind.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

/// Adds `text` to the end of `path`, which is made if it is absent, in one write: lines of several
/// writers do not mix. A full disk may leave a part of it.
void append_to_file(const std::filesystem::path& path, std::string_view text);

/// Deletes what a process killed in write_file_atomic left in `folder`.
/// Only for who writes there alone.
void remove_temporaries(const std::filesystem::path& folder);

/// Writes all of `bytes` at `offset`; short writes and EINTR are continued.
void write_all(int fd, std::span<const std::byte> bytes, std::uint64_t offset,
               const std::filesystem::path& path);

/// Reads exactly bytes.size() at `offset`; Error(data) if the file ends before.
void read_all(int fd, std::span<std::byte> bytes, std::uint64_t offset,
              const std::filesystem::path& path);

/// A regular file; Error(data) if it is anything else.
Fd open_read(const std::filesystem::path& path);
void sync_file(int fd, const std::filesystem::path& path);
void sync_folder(const std::filesystem::path& folder);

/// rename(2) that refuses to replace an existing target, then fsync of the parent folder.
void publish(const std::filesystem::path& temporary, const std::filesystem::path& target);

}  // namespace trireme
