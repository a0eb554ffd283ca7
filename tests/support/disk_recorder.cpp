#include "support/disk_recorder.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <fstream>
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
  static auto* const one = new Recorder;  // outlives every static that may still do file work
  return *one;
}

/// The name below the recorded folder; empty for anything else, or while nothing is recorded.
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

/// Counts a changing call; true: it must fail now (errno is set).
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

ssize_t positioned_write(
    const char* name, int fd, const void* data, std::size_t size, off_t offset) {
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

/// Path of a name relative to an open folder.
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

namespace {

struct LiveNode {
  bool is_folder = false;
  std::string now;                     // content, all calls done
  std::string synced;                  // as of the last fsync
  std::string some;                    // with the writes that chance lets through
  std::map<std::string, int> entries;  // names, all calls done
  std::map<std::string, int> synced_entries;
  std::map<std::string, int> early_entries;  // up to some call
};

std::pair<std::string, std::string> split(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

void put(std::string& content, std::uint64_t offset, const std::string& bytes) {
  content.resize(std::max<std::size_t>(content.size(), offset + bytes.size()));
  content.replace(offset, bytes.size(), bytes);
}

/// The folder a path lies in.
LiveNode& parent(std::map<int, LiveNode>& nodes, const std::string& path) {
  int node = 0;
  std::string rest = split(path).first;
  while (!rest.empty()) {
    const std::size_t slash = rest.find('/');
    node = nodes.at(node).entries.at(rest.substr(0, slash));
    rest = slash == std::string::npos ? "" : rest.substr(slash + 1);
  }
  return nodes.at(node);
}

void apply(std::map<int, LiveNode>& nodes, const DiskCall& call, bool through) {
  using Kind = DiskCall::Kind;
  const std::string name = split(call.path).second;
  switch (call.kind) {
    case Kind::create:
    case Kind::make_folder:
      nodes[call.node].is_folder = call.kind == Kind::make_folder;
      parent(nodes, call.path).entries[name] = call.node;
      break;
    case Kind::write:
      put(nodes.at(call.node).now, call.offset, call.bytes);
      if (through) put(nodes.at(call.node).some, call.offset, call.bytes);
      break;
    case Kind::resize:
      nodes.at(call.node).now.resize(call.offset);
      nodes.at(call.node).some.resize(call.offset);
      break;
    case Kind::sync: {
      LiveNode& node = nodes.at(call.node);
      node.synced = node.some = node.now;
      node.synced_entries = node.early_entries = node.entries;
      break;
    }
    case Kind::rename: {
      LiveNode& from = parent(nodes, call.path);
      LiveNode& to = parent(nodes, call.target);
      const int node = from.entries.at(name);
      from.entries.erase(name);
      to.entries[split(call.target).second] = node;
      break;
    }
    case Kind::remove:
      parent(nodes, call.path).entries.erase(name);
      break;
  }
}

}  // namespace

DiskImage::DiskImage(const std::vector<DiskCall>& calls,
                     std::size_t count,
                     Lost lost,
                     unsigned seed) {
  std::mt19937 random(seed);
  std::map<int, LiveNode> live;
  live[0].is_folder = true;
  const std::size_t early = count == 0 ? 0 : random() % count;
  for (std::size_t i = 0; i < count; ++i) {
    apply(live, calls[i], random() % 2 == 0);
    if (i != early) continue;
    for (auto& [number, node] : live) node.early_entries = node.entries;
  }
  for (const auto& [number, node] : live) {
    Node& image = nodes_[number];
    image.is_folder = node.is_folder;
    const bool names_kept = lost == Lost::nothing || lost == Lost::data;
    image.entries = names_kept           ? node.entries
                    : lost == Lost::some ? node.early_entries
                                         : node.synced_entries;
    const bool data_kept = lost == Lost::nothing || lost == Lost::names;
    image.content = data_kept ? node.now : lost == Lost::some ? node.some : node.synced;
    if (lost == Lost::data) image.content.resize(node.now.size());
  }
}

void DiskImage::write(const fs::path& folder) const {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) fs::remove_all(entry);
  const auto put_node = [&](const auto& self, int number, const fs::path& path) -> void {
    const Node& node = nodes_.at(number);
    if (!node.is_folder) {
      std::ofstream(path, std::ios::binary) << node.content;
      return;
    }
    fs::create_directory(path);
    for (const auto& [name, child] : node.entries) self(self, child, path / name);
  };
  put_node(put_node, 0, folder);
}

}  // namespace trireme::test

using namespace trireme::test;

// The system's own names: the dynamic linker finds these first.
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
        {DiskCall::Kind::make_folder, new_node(path), below(path), "", 0, ""});
  return result;
}

int rename(const char* from, const char* to) noexcept {
  TRIREME_LOCK;
  if (refused()) return -1;
  const int result = real<int(const char*, const char*)>("rename")(from, to);
  renamed(result, below(from), below(to));
  return result;
}

int renameat2(
    int from_folder, const char* from, int to_folder, const char* to, unsigned flags) noexcept {
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
