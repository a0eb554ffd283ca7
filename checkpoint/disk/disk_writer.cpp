#include "checkpoint/disk/disk_writer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/crc32c.hpp"
#include "core/process/failpoints.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{4} << 20;
constexpr int kBuffers = 4;
constexpr int kWriters = 2;  // one request runs while the next is prepared
constexpr std::size_t kChunk = std::size_t{128}
                               << 10;  // stays in the CPU cache for two checksums and a copy
constexpr std::uint64_t kDirectWriteBytes = std::uint64_t{1}
                                            << 20;  // O_DIRECT does not pay off for smaller files

}  // namespace

void WriteRateLimit::spend(std::uint64_t bytes) {
  std::unique_lock lock(mutex_);
  const auto now = std::chrono::steady_clock::now();
  free_at_ = std::max(free_at_, now);
  wake_.wait_until(lock, free_at_, [&] { return bytes_per_s_ <= 0; });
  if (bytes_per_s_ <= 0) return;
  free_at_ += std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_s_));
}

void WriteRateLimit::lift() {
  const std::lock_guard lock(mutex_);
  bytes_per_s_ = 0;
  wake_.notify_all();
}

DiskWriter::DiskWriter(const std::filesystem::path& path, WriteRateLimit* rate_limit)
    : path_(path),
      rate_limit_(rate_limit),
      plain_(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC)) {
  struct stat info {};

  if (!plain_ || ::fstat(plain_.get(), &info) != 0) fail_to_write("open again", path, errno);
  size_ = static_cast<std::uint64_t>(info.st_size);
  // Reserve the space now, so that a full disk fails before any tensor is written.
  const int code = size_ == 0 ? 0 : ::posix_fallocate(plain_.get(), 0, info.st_size);
  if (code != 0) fail_to_write(formatted("reserve {} bytes for", size_), path, code);
  if (size_ >= kDirectWriteBytes)
    direct_.reset(::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_DIRECT));
  const int num_threads = size_ > kBufferBytes ? kWriters : 1;
  for (int i = 0; i < (size_ > kBufferBytes ? kBuffers : 1); ++i) {
    free_.push_back(std::make_unique<Buffer>());
    free_.back()->memory = AlignedBuffer(std::min<std::size_t>(kBufferBytes, size_));
  }
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { write_buffers(); });
  take_free_buffer();
}

DiskWriter::~DiskWriter() {
  stop();
}

void DiskWriter::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    changed_.notify_all();
  }
  threads_.clear();
}

void DiskWriter::rethrow_locked() {
  if (error_) std::rethrow_exception(error_);
}

void DiskWriter::take_free_buffer() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !free_.empty() || error_; });
  rethrow_locked();
  current_ = std::move(free_.front());
  free_.pop_front();
  current_->at = position_;
  current_->bytes = 0;
}

void DiskWriter::hand_over() {
  failpoint("checkpoint.shard.write");
  if (rate_limit_ != nullptr) rate_limit_->spend(current_->bytes);
  const std::lock_guard lock(mutex_);
  rethrow_locked();
  full_.push_back(std::move(current_));
  changed_.notify_all();
}

std::uint32_t DiskWriter::append(std::span<const std::byte> bytes) {
  TRIREME_ASSERT(bytes.size() <= size_ - position_);
  std::uint32_t checksum = 0;
  while (!bytes.empty()) {
    const std::size_t room =
        std::min<std::size_t>(kBufferBytes, size_ - current_->at) - current_->bytes;
    const auto chunk = bytes.first(std::min({bytes.size(), room, kChunk}));
    checksum = crc32c(chunk, checksum);
    hasher_.update(chunk);
    std::memcpy(current_->memory.data() + current_->bytes, chunk.data(), chunk.size());
    current_->bytes += chunk.size();
    position_ += chunk.size();
    bytes = bytes.subspan(chunk.size());
    if (chunk.size() == room) {
      hand_over();
      if (position_ < size_) take_free_buffer();
    }
  }
  return checksum;
}

std::string DiskWriter::finish() {
  TRIREME_ASSERT(position_ == size_);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return (full_.empty() && in_write_ == 0) || error_; });
    rethrow_locked();
  }
  stop();
  failpoint("checkpoint.shard.sync");
  sync_file(plain_.get(), path_);
  if (::close(plain_.release()) != 0) fail_to_write("close", path_, errno);
  return hasher_.hex();
}

void DiskWriter::write_buffers() noexcept {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stop_ || !full_.empty(); });
    if (stop_) return;
    std::unique_ptr<Buffer> buffer = std::move(full_.front());
    full_.pop_front();
    ++in_write_;
    lock.unlock();
    std::exception_ptr error;
    try {
      write_buffer(*buffer);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --in_write_;
    if (error && !error_) error_ = error;
    free_.push_back(std::move(buffer));
    changed_.notify_all();
  }
}

void DiskWriter::write_buffer(const Buffer& buffer) {
  const auto bytes = std::span<const std::byte>(buffer.memory.data(), buffer.bytes);
  std::size_t done = 0;
  if (direct_) {
    const std::size_t whole = bytes.size() - bytes.size() % AlignedBuffer::kAlignment;
    while (done < whole) {
      const ssize_t wrote = ::pwrite(direct_.get(), bytes.data() + done, whole - done,
                                     static_cast<off_t>(buffer.at + done));
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0 && errno == EINVAL) break;  // the file system requires a larger alignment
      if (wrote < 0) fail_to_write("write", path_, errno);
      done += static_cast<std::size_t>(wrote);
    }
  }
  if (done == bytes.size()) return;
  write_all(plain_.get(), bytes.subspan(done), buffer.at + done, path_);
  // Start the write-back early. This is only a hint; the fsync at the end makes the data durable.
  (void)::sync_file_range(plain_.get(), static_cast<off_t>(buffer.at + done),
                          static_cast<off_t>(bytes.size() - done), SYNC_FILE_RANGE_WRITE);
}

}  // namespace trireme::checkpoint
