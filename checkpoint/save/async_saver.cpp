#include "checkpoint/save/async_saver.hpp"

#include <algorithm>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/process/failpoints.hpp"

namespace trireme::checkpoint {
namespace {

constexpr double kFirstWindow_s = 20;
constexpr double kMinBytesPerSecond = 100e6;

}  // namespace

AsyncSaver::AsyncSaver(double mb_per_s) : mb_per_s_(mb_per_s) {}

AsyncSaver::~AsyncSaver() {
  leaving_ = true;
  wait_reserved();
  if (rate_limit_) rate_limit_->lift();
  if (thread_.joinable()) thread_.join();
}

void AsyncSaver::reserve(std::size_t bytes) {
  TRIREME_ASSERT(!last_start_ && !reserving_.joinable());
  reserving_ = std::thread([this, bytes] {
    (void)comm::capture([&] {
      AlignedBuffer memory(bytes);
      for (std::size_t at = 0; at < memory.size() && !leaving_; at += AlignedBuffer::kAlignment)
        memory.data()[at] = std::byte{0};
      const std::lock_guard lock(mutex_);
      memory_ = std::move(memory);
    });
  });
}

void AsyncSaver::wait_reserved() {
  if (reserving_.joinable()) reserving_.join();
}

double AsyncSaver::bytes_per_s(std::uint64_t bytes) {
  const auto now = std::chrono::steady_clock::now();
  const double between_s =
      last_start_ ? std::chrono::duration<double>(now - *last_start_).count() : 2 * kFirstWindow_s;
  last_start_ = now;
  if (mb_per_s_ > 0) return mb_per_s_ * 1e6;
  return std::max(kMinBytesPerSecond, static_cast<double>(bytes) / std::max(between_s / 2, 1e-3));
}

void AsyncSaver::start(StagedCheckpoint staged) {
  TRIREME_ASSERT(!in_flight());
  std::uint64_t bytes = 0;
  for (const SliceToWrite& slice : staged.slices) bytes += slice.num_bytes();
  wait_reserved();
  rate_limit_.emplace(bytes_per_s(bytes));
  copied_ = false;
  done_ = false;
  written_ = {};
  staged_ = std::move(staged);
  thread_ = std::thread([this] { run(); });
}

void AsyncSaver::run() {
  const auto error = comm::capture([&] {
    failpoint("checkpoint.copy");
    copy_slices(*staged_, std::move(memory_));
  });
  {
    const std::lock_guard lock(mutex_);
    copied_ = true;
    changed_.notify_all();
  }
  WrittenShard written;
  if (error) {
    written.error = error;
  } else {
    written = write_staged_shard(*staged_, &*rate_limit_);
  }
  const std::lock_guard lock(mutex_);
  written_ = std::move(written);
  done_ = true;
}

void AsyncSaver::wait_copied() {
  if (!in_flight()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return copied_; });
}

bool AsyncSaver::done() const {
  const std::lock_guard lock(mutex_);
  return staged_.has_value() && done_;
}

AsyncSaver::Result AsyncSaver::finish() {
  TRIREME_ASSERT(in_flight());
  rate_limit_->lift();
  thread_.join();
  Result result{std::move(*staged_), std::move(written_)};
  staged_.reset();
  return result;
}

std::size_t AsyncSaver::memory_bytes() const noexcept {
  const std::lock_guard lock(mutex_);
  return staged_ && copied_ ? staged_->arena.size() : memory_.size();
}

}  // namespace trireme::checkpoint
