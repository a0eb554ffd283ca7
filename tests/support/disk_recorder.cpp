#include "support/disk_recorder.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <mutex>
#include <utility>

namespace trireme::test {
namespace {

namespace fs = std::filesystem;

struct Recorder {
  std::recursive_mutex mutex;
  bool recording = false;
  std::string folder;
  std::map<std::pair<dev_t, ino_t>, int> nodes;
  int next_node = 1;
  std::vector<DiskCall> calls;
  std::uint64_t fail_at = 0;
  int fail_error = 0;
  std::uint64_t num_calls = 0;
};

Recorder& recorder() {
  // The recorder is never destroyed, because static objects may access files at exit.
  static auto* const one = new Recorder;
  return *one;
}

/// Returns the path relative to the recorded directory; empty if it lies elsewhere or nothing is
/// recorded.
std::string below(const char* path) {
  const Recorder& now = recorder();
  if (!now.recording) return "";
  const std::string whole = fs::absolute(path).lexically_normal().string();
  if (whole.size() <= now.folder.size() + 1 || !whole.starts_with(now.folder + "/")) return "";
  return whole.substr(now.folder.size() + 1);
}

int node_of(int fd) {
  struct stat info {};

  if (!recorder().recording || ::fstat(fd, &info) != 0) return -1;
  const auto found = recorder().nodes.find({info.st_dev, info.st_ino});
  return found == recorder().nodes.end() ? -1 : found->second;
}

int new_node(const char* path) {
  struct stat info {};

  if (::lstat(path, &info) != 0) return -1;
  return recorder().nodes[{info.st_dev, info.st_ino}] = recorder().next_node++;
}

/// Counts a modifying call. Returns true if this call must fail now (errno is set).
bool refused() {
  Recorder& now = recorder();
  if (++now.num_calls != now.fail_at) return false;
  errno = now.fail_error;
  return true;
}

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

#define TRIREME_LOCK const std::lock_guard lock(recorder().mutex)

int opened(const char* name, const char* path, int flags, mode_t mode) {
  TRIREME_LOCK;
  const bool creates = (flags & O_CREAT) != 0 && ::access(path, F_OK) != 0;
  if (creates && refused()) return -1;
  const int fd = real<int(const char*, int, mode_t)>(name)(path, flags, mode);
  if (fd >= 0 && creates && !below(path).empty())
    recorder().calls.push_back({DiskCall::Kind::create, new_node(path), below(path), "", 0, ""});
  return fd;
}

ssize_t written(int fd, ssize_t done, const void* data, std::uint64_t offset) {
  const int node = node_of(fd);
  if (done > 0 && node >= 0) {
    recorder().calls.push_back({DiskCall::Kind::write,
                                node,
                                "",
                                "",
                                offset,
                                {static_cast<const char*>(data), static_cast<std::size_t>(done)}});
  }
  return done;
}

ssize_t positioned_write(const char* name, int fd, const void* data, std::size_t size,
                         off_t offset) {
  TRIREME_LOCK;
  if (refused()) return -1;
  const ssize_t done =
      real<ssize_t(int, const void*, std::size_t, off_t)>(name)(fd, data, size, offset);
  return written(fd, done, data, static_cast<std::uint64_t>(offset));
}

int resized(const char* name, int fd, off_t size) {
  TRIREME_LOCK;
  if (refused()) return -1;
  const int result = real<int(int, off_t)>(name)(fd, size);
  const int node = node_of(fd);
  if (result == 0 && node >= 0)
    recorder().calls.push_back(
        {DiskCall::Kind::resize, node, "", "", static_cast<std::uint64_t>(size), ""});
  return result;
}

int synced(const char* name, int fd) {
  TRIREME_LOCK;
  if (refused()) return -1;
  const int result = real<int(int)>(name)(fd);
  const int node = node_of(fd);
  if (result == 0 && node >= 0)
    recorder().calls.push_back({DiskCall::Kind::sync, node, "", "", 0, ""});
  return result;
}

void removed(int result, const std::string& name) {
  if (result == 0 && !name.empty())
    recorder().calls.push_back({DiskCall::Kind::remove, -1, name, "", 0, ""});
}

void renamed(int result, const std::string& from, const std::string& to) {
  if (result == 0 && !from.empty() && !to.empty())
    recorder().calls.push_back({DiskCall::Kind::rename, -1, from, to, 0, ""});
}

/// Returns the path of a name relative to an open directory.
std::string joined(int folder, const char* name) {
  if (folder == AT_FDCWD || name[0] == '/') return name;
  return (fs::read_symlink("/proc/self/fd/" + std::to_string(folder)) / name).string();
}

}  // namespace

void record_disk(const fs::path& folder) {
  TRIREME_LOCK;
  Recorder& now = recorder();
  now.folder = fs::absolute(folder).lexically_normal().string();
  now.nodes.clear();
  now.calls.clear();
  now.next_node = 0;
  (void)new_node(now.folder.c_str());
  now.recording = true;
}

std::vector<DiskCall> stop_recording() {
  TRIREME_LOCK;
  recorder().recording = false;
  return std::move(recorder().calls);
}

std::uint64_t fail_disk_call(std::uint64_t nth, int error) {
  TRIREME_LOCK;
  recorder().fail_at = nth;
  recorder().fail_error = error;
  return std::exchange(recorder().num_calls, 0);
}

}  // namespace trireme::test

using namespace trireme::test;

// These functions have the system's names: the dynamic linker finds them first.
extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(rest, int)) : mode_t{0};
  va_end(rest);
  return opened("open", path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const auto mode = (flags & O_CREAT) != 0 ? static_cast<mode_t>(va_arg(rest, int)) : mode_t{0};
  va_end(rest);
  return opened("open64", path, flags, mode);
}

ssize_t write(int fd, const void* data, std::size_t size) {
  TRIREME_LOCK;
  const int node = node_of(fd);
  if (node >= 0 && refused()) return -1;
  const off_t offset = node >= 0 ? ::lseek(fd, 0, SEEK_CUR) : 0;
  const ssize_t done = real<ssize_t(int, const void*, std::size_t)>("write")(fd, data, size);
  return written(fd, done, data, static_cast<std::uint64_t>(offset));
}

ssize_t pwrite(int fd, const void* data, std::size_t size, off_t offset) {
  return positioned_write("pwrite", fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void* data, std::size_t size, off64_t offset) {
  return positioned_write("pwrite64", fd, data, size, offset);
}

int ftruncate(int fd, off_t size) noexcept {
  return resized("ftruncate", fd, size);
}

int ftruncate64(int fd, off64_t size) noexcept {
  return resized("ftruncate64", fd, size);
}

int posix_fallocate(int fd, off_t offset, off_t length) {
  TRIREME_LOCK;
  if (refused()) return recorder().fail_error;
  return real<int(int, off_t, off_t)>("posix_fallocate")(fd, offset, length);
}

int fsync(int fd) {
  return synced("fsync", fd);
}

int fdatasync(int fd) {
  return synced("fdatasync", fd);
}

int mkdir(const char* path, mode_t mode) noexcept {
  TRIREME_LOCK;
  if (refused()) return -1;
  const int result = real<int(const char*, mode_t)>("mkdir")(path, mode);
  if (result == 0 && !below(path).empty())
    recorder().calls.push_back(
        {DiskCall::Kind::make_directory, new_node(path), below(path), "", 0, ""});
  return result;
}

int rename(const char* from, const char* to) noexcept {
  TRIREME_LOCK;
  if (refused()) return -1;
  const int result = real<int(const char*, const char*)>("rename")(from, to);
  renamed(result, below(from), below(to));
  return result;
}

int renameat2(int from_folder, const char* from, int to_folder, const char* to,
              unsigned flags) noexcept {
  TRIREME_LOCK;
  if (refused()) return -1;
  const int result = real<int(int, const char*, int, const char*, unsigned)>("renameat2")(
      from_folder, from, to_folder, to, flags);
  renamed(result, below(joined(from_folder, from).c_str()), below(joined(to_folder, to).c_str()));
  return result;
}

int unlink(const char* path) noexcept {
  TRIREME_LOCK;
  const int result = real<int(const char*)>("unlink")(path);
  removed(result, below(path));
  return result;
}

int rmdir(const char* path) noexcept {
  TRIREME_LOCK;
  const int result = real<int(const char*)>("rmdir")(path);
  removed(result, below(path));
  return result;
}

int remove(const char* path) noexcept {
  TRIREME_LOCK;
  const int result = real<int(const char*)>("remove")(path);
  removed(result, below(path));
  return result;
}

int unlinkat(int folder, const char* name, int flags) noexcept {
  TRIREME_LOCK;
  const std::string path = recorder().recording ? joined(folder, name) : "";
  const int result = real<int(int, const char*, int)>("unlinkat")(folder, name, flags);
  if (!path.empty()) removed(result, below(path.c_str()));
  return result;
}

}  // extern "C"
