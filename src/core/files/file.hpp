#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "core/unique_handle.hpp"

/// Files are published as a whole: written under a temporary name, fsynced and renamed, then the
/// directory is fsynced. If the system refuses an operation, all functions throw the Error of
/// refusal.hpp with path and errno. Bad content is Error(data).
namespace trireme {

struct FdTraits {
  using Raw = int;

  static Raw null() noexcept { return -1; }

  static void close(Raw fd) noexcept;
};

using Fd = UniqueHandle<FdTraits>;

/// Reads a whole file. Throws Error(data) if it is absent, larger than `max_bytes` or not a regular
/// file: a pipe in a directory must not block a run forever.
std::string read_file(const std::filesystem::path& path,
                      std::size_t max_bytes = std::size_t{1} << 32);

/// Like read_file(), but also reads pipes (`--config <(...)`), for files that a user names.
std::string read_text(const std::filesystem::path& path, std::size_t max_bytes);

/// Replaces `path` in one step: a reader sees the old or the new content, never a part. The mode is
/// 0644 minus umask. On an error the old content stays and no temporary file remains.
void write_file_atomic(const std::filesystem::path& path, std::string_view content);

/// Appends `text` in one write, so that lines of several writers do not mix. Creates the file if it
/// is absent. If the disk is full, a part of the text may be written.
void append_to_file(const std::filesystem::path& path, std::string_view text);

/// Deletes temporary files of a killed write_file_atomic(). No other process may write there.
void remove_temporaries(const std::filesystem::path& folder);

/// Writes all of `bytes` at `offset`; continues after short writes and EINTR.
void write_all(int fd, std::span<const std::byte> bytes, std::uint64_t offset,
               const std::filesystem::path& path);

/// Reads exactly bytes.size() bytes at `offset`; Error(data) if the file ends earlier.
void read_all(int fd, std::span<std::byte> bytes, std::uint64_t offset,
              const std::filesystem::path& path);

/// Opens a regular file; Error(data) if it is anything else.
Fd open_read(const std::filesystem::path& path);
void sync_file(int fd, const std::filesystem::path& path);
void sync_directory(const std::filesystem::path& folder);

/// Renames without replacing an existing target, then fsyncs the parent directory.
void publish(const std::filesystem::path& temporary, const std::filesystem::path& target);

}  // namespace trireme
