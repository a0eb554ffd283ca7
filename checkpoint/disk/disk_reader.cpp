#include "checkpoint/disk/disk_reader.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::uint64_t kBlockBytes = std::uint64_t{4} << 20;
constexpr std::uint64_t kReaders = 3;
constexpr std::uint64_t kDirectReadBytes = std::uint64_t{1}
                                           << 20;  // O_DIRECT does not pay off for smaller files

/// Returns true if most of the file is in the page cache, which is then the fastest source.
bool is_cached(int fd, std::uint64_t size) {
  constexpr std::uint64_t kWindow = std::uint64_t{1} << 30;  // limits the memory for any file size
  const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t pages = 0;
  std::uint64_t cached = 0;
  std::vector<unsigned char> present;
  for (std::uint64_t at = 0; at < size; at += kWindow) {
    const std::uint64_t length = std::min(kWindow, size - at);
    void* const map = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(at));
    if (map == MAP_FAILED) return true;
    present.assign((length + page - 1) / page, 0);
    const bool known = ::mincore(map, length, present.data()) == 0;
    ::munmap(map, length);
    if (!known) return true;
    pages += present.size();
    cached += static_cast<std::uint64_t>(std::count_if(
        present.begin(), present.end(), [](unsigned char flags) { return (flags & 1) != 0; }));
  }
  return cached * 4 > pages * 3;
}

/// O_NOFOLLOW: a link could lead out of the directory. O_NONBLOCK: do not wait for a pipe's writer.
Fd open_regular(const std::filesystem::path& path, std::uint64_t& size) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    fail(kind_of_errno(Access::read, errno), "cannot open {}: {}", path.string(),
         errno == ELOOP ? "it is a symbolic link, which is not followed" : std::strerror(errno));
  }

  struct stat info {};

  if (::fstat(fd.get(), &info) != 0) fail_to_read("stat", path, errno);
  if (!S_ISREG(info.st_mode)) fail(ErrorKind::data, "{} is not a regular file", path.string());
  size = static_cast<std::uint64_t>(info.st_size);
  return fd;
}

}  // namespace

Fd open_recorded(const std::filesystem::path& directory, const SavedFile& file) {
  const std::filesystem::path path = directory / file.name;
  std::uint64_t size = 0;
  Fd fd = open_regular(path, size);
  if (size != file.bytes)
    fail(ErrorKind::data, "{} has {} bytes, the manifest says {}", path.string(), size, file.bytes);
  return fd;
}

std::string read_regular(const std::filesystem::path& path, std::uint64_t max_bytes) {
  std::uint64_t size = 0;
  const Fd fd = open_regular(path, size);
  if (size > max_bytes)
    fail(ErrorKind::data, "{} has {} bytes, at most {} are allowed", path.string(), size,
         max_bytes);
  std::string content(static_cast<std::size_t>(size), '\0');
  read_all(fd.get(), std::as_writable_bytes(std::span(content)), 0, path);
  return content;
}

DiskReader::DiskReader(const std::filesystem::path& directory, const SavedFile& file)
    : path_(directory / file.name), size_(file.bytes), plain_(open_recorded(directory, file)) {
  if (size_ < kDirectReadBytes || is_cached(plain_.get(), size_)) return;
  // Open the same file again through /proc: its name may belong to another file by now.
  const std::string same = formatted("/proc/self/fd/{}", plain_.get());
  direct_.reset(::open(same.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
}

std::span<const std::byte> DiskReader::read(std::uint64_t at, std::size_t bytes,
                                            AlignedBuffer& buffer) const {
  constexpr std::uint64_t kAlign = AlignedBuffer::kAlignment;
  const std::uint64_t begin = at - at % kAlign;
  const auto skip = static_cast<std::size_t>(at - begin);
  const std::size_t wanted = skip + bytes;
  const std::size_t whole = (wanted + kAlign - 1) / kAlign * kAlign;
  if (buffer.size() < whole) buffer = AlignedBuffer(whole);
  const std::span<std::byte> place(buffer.data() + skip, bytes);
  std::size_t done = 0;
  while (direct_ && done < wanted) {
    const ssize_t got = ::pread(direct_.get(), buffer.data() + done, whole - done,
                                static_cast<off_t>(begin + done));
    if (got < 0 && errno == EINTR) continue;
    // The read ended at an unaligned end of file, or the file system requires a larger alignment.
    if (got <= 0 || static_cast<std::size_t>(got) % kAlign != 0) {
      if (got > 0) done += static_cast<std::size_t>(got);
      break;
    }
    done += static_cast<std::size_t>(got);
  }
  if (done < wanted) {
    const std::size_t from = done > skip ? done - skip : 0;
    read_all(plain_.get(), place.subspan(from), at + from, path_);
  }
  return place;
}

DiskStream::DiskStream(const DiskReader& reader)
    : reader_(&reader), num_blocks_((reader.size() + kBlockBytes - 1) / kBlockBytes) {
  const std::uint64_t num_threads = std::min(kReaders, num_blocks_);
  for (std::uint64_t i = 0; i < num_threads; ++i) threads_.emplace_back([this] { read_ahead(); });
}

DiskStream::~DiskStream() {
  const std::unique_lock lock(mutex_);
  stop_ = true;
  changed_.notify_all();
}

void DiskStream::read_ahead() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock,
                  [&] { return stop_ || begun_ == num_blocks_ || begun_ <= wanted_ + kReaders; });
    if (stop_ || begun_ == num_blocks_) return;
    const std::uint64_t number = begun_++;
    Block block;
    if (!free_.empty()) {
      block.buffer = std::move(free_.back());
      free_.pop_back();
    }
    lock.unlock();
    try {
      const std::uint64_t at = number * kBlockBytes;
      block.bytes = reader_->read(
          at, static_cast<std::size_t>(std::min(kBlockBytes, reader_->size() - at)), block.buffer);
    } catch (...) {
      block.error = std::current_exception();
    }
    lock.lock();
    ready_.emplace(number, std::move(block));
    changed_.notify_all();
  }
}

std::span<const std::byte> DiskStream::next() {
  std::unique_lock lock(mutex_);
  if (current_.buffer.size() > 0) free_.push_back(std::move(current_.buffer));
  if (wanted_ == num_blocks_) return {};
  changed_.wait(lock, [&] { return ready_.contains(wanted_); });
  current_ = std::move(ready_.extract(wanted_).mapped());
  ++wanted_;
  changed_.notify_all();
  if (current_.error) std::rethrow_exception(current_.error);
  return current_.bytes;
}

std::string hash_recorded(const std::filesystem::path& directory, const SavedFile& file,
                          const std::function<void(std::span<const std::byte>)>& see) {
  const DiskReader reader(directory, file);
  DiskStream stream(reader);
  Hasher hasher;
  for (auto block = stream.next(); !block.empty(); block = stream.next()) {
    hasher.update(block);
    see(block);
  }
  return hasher.hex();
}

}  // namespace trireme::checkpoint
