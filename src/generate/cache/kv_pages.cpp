#include "generate/cache/kv_pages.hpp"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <chrono>

#include "device/own_pages.hpp"

namespace trireme::generate {
namespace {

/// The pause after the pages of each head, during which model steps can use the CPU cores.
constexpr std::chrono::milliseconds kPause{30};

std::int64_t num_blocks(const model::KvCache& cache) {
  return cache.layers.empty() ? 0 : cache.layers.front().num_blocks();
}

}  // namespace

KvPages::KvPages(const model::KvCache& cache) : cache_(cache) {
  if (num_blocks(cache) == 0 || !cache.layers.front().keys.is_cpu()) return;
  reach(0);
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void KvPages::reach(std::int64_t reached) {
  const std::lock_guard lock(mutex_);
  const std::int64_t wanted = std::min(reached + kAhead, num_blocks(cache_));
  if (wanted <= wanted_) return;
  wanted_ = wanted;
  changed_.notify_one();
}

std::int64_t KvPages::done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void KvPages::pause(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, stop, kPause, [] { return false; });
}

void KvPages::run(const std::stop_token& stop) {
  while (true) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait(lock, stop, [this] { return wanted_ > done_; })) return;
    const std::int64_t first = done_;
    const std::int64_t count = wanted_ - first;
    lock.unlock();
    for (const ops::PagedCache& layer : cache_.layers) {
      for (const at::Tensor& numbers : {layer.keys, layer.values}) {
        for (std::int64_t head = 0; head < layer.kv_heads(); ++head) {
          if (stop.stop_requested()) return;
          const device::Backed backed =
              device::back_with_memory(numbers.select(0, head).narrow(0, first, count));
          if (backed == device::Backed::not_possible) return;
          if (backed == device::Backed::now) pause(stop);
        }
      }
    }
    lock.lock();
    done_ = first + count;
  }
}

}  // namespace trireme::generate
