#include "core/files/file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/files/refusal.hpp"

namespace trireme {
namespace {

constexpr std::string_view kTemporaryMark = ".tmp.";

std::filesystem::path parent_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

struct stat stat_of(int fd, const std::filesystem::path& path) {
  struct stat info {};

  if (::fstat(fd, &info) != 0) fail_to_read("stat", path, errno);
  return info;
}

std::string read_to_end(int fd, const std::filesystem::path& path, std::size_t max_bytes) {
  const auto size = static_cast<std::uint64_t>(stat_of(fd, path).st_size);
  if (size > max_bytes) {  // checked first, because a sparse file could request all memory
    fail(ErrorKind::data, "{} has {} bytes; the limit is {} bytes", path.string(), size, max_bytes);
  }
  std::string content;
  content.reserve(static_cast<std::size_t>(size));
  char buffer[1 << 16];
  while (true) {
    const ssize_t got = ::read(fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_to_read("read", path, errno);
    if (got == 0) break;
    content.append(buffer, static_cast<std::size_t>(got));
    if (content.size() > max_bytes)
      fail(ErrorKind::data, "{} has more than {} bytes", path.string(), max_bytes);
  }
  return content;
}

}  // namespace

void FdTraits::close(Raw fd) noexcept {
  ::close(fd);
}

Fd open_read(const std::filesystem::path& path) {
  // O_NONBLOCK: a pipe may have no writer
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) fail_to_read("open", path, errno);
  const struct stat info = stat_of(fd.get(), path);
  if (S_ISDIR(info.st_mode))
    fail(ErrorKind::data, "cannot read {}: it is a directory", path.string());
  if (!S_ISREG(info.st_mode))
    fail(ErrorKind::data, "cannot read {}: it is not a regular file", path.string());
  return fd;
}

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  return read_to_end(open_read(path).get(), path, max_bytes);
}

std::string read_text(const std::filesystem::path& path, std::size_t max_bytes) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) fail_to_read("open", path, errno);
  return read_to_end(fd.get(), path, max_bytes);
}

void write_all(int fd, std::span<const std::byte> bytes, std::uint64_t offset,
               const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t wrote =
        ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail_to_write("write", path, errno);
    done += static_cast<std::size_t>(wrote);
  }
}

void read_all(int fd, std::span<std::byte> bytes, std::uint64_t offset,
              const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_to_read("read", path, errno);
    if (got == 0)
      fail(ErrorKind::data, "{} ends at byte {}, expected {}", path.string(), offset + done,
           offset + bytes.size());
    done += static_cast<std::size_t>(got);
  }
}

void sync_file(int fd, const std::filesystem::path& path) {
  if (::fsync(fd) != 0) fail_to_write("fsync", path, errno);
}

void sync_directory(const std::filesystem::path& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) fail_to_write("open directory", folder, errno);
  if (::fsync(fd.get()) != 0) fail_to_write("fsync directory", folder, errno);
}

void publish(const std::filesystem::path& temporary, const std::filesystem::path& target) {
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno == EINVAL || errno == ENOSYS) {  // some NFS file systems have no RENAME_NOREPLACE
      std::error_code code;
      if (std::filesystem::exists(target, code)) fail_to_write("make", target, EEXIST);
      if (std::rename(temporary.c_str(), target.c_str()) == 0) {
        sync_directory(parent_of(target));
        return;
      }
    }
    fail_to_write("make", target, errno);
  }
  sync_directory(parent_of(target));
}

void write_file_atomic(const std::filesystem::path& path, std::string_view content) {
  check_replaceable(path);
  static std::atomic<unsigned> count{0};  // ranks may be threads of one process
  const std::filesystem::path temporary =
      formatted("{}{}{}.{}", path.string(), kTemporaryMark, ::getpid(), count++);
  try {
    const Fd fd(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (!fd) fail_to_write("create", path, errno);
    write_all(fd.get(), std::as_bytes(std::span(content)), 0, temporary);
    sync_file(fd.get(), temporary);
    if (std::rename(temporary.c_str(), path.c_str()) != 0) fail_to_write("replace", path, errno);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_directory(parent_of(path));
}

void append_to_file(const std::filesystem::path& path, std::string_view text) {
  const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (fd) errno = ENOSPC;  // the cause of a short write
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    fail_to_write("append to", path, errno);
}

void remove_temporaries(const std::filesystem::path& folder) {
  std::error_code code;
  std::vector<std::filesystem::path> left;
  for (std::filesystem::directory_iterator it(folder, code), end; !code && it != end;
       it.increment(code)) {
    const std::string name = it->path().filename().string();
    const std::size_t mark = name.rfind(kTemporaryMark);
    const bool ours =
        mark != std::string::npos &&
        name.find_first_not_of("0123456789.", mark + kTemporaryMark.size()) == std::string::npos;
    if (ours) left.push_back(it->path());
  }
  for (const std::filesystem::path& path : left) std::filesystem::remove(path, code);
}

}  // namespace trireme
