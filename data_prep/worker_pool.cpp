#include "data_prep/worker_pool.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "core/error.hpp"
#include "core/process/allowed_cpus.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::chrono::milliseconds kTickPeriod{5};

}  // namespace

WorkerPool::WorkerPool(int num_threads) {
  for (int worker = 0; worker < num_threads; ++worker)
    threads_.emplace_back([this, worker] { work(worker); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void WorkerPool::run(std::size_t count, const std::function<void(std::size_t, int)>& task,
                     const std::function<void()>& tick) {
  std::unique_lock lock(mutex_);
  task_ = &task;
  next_ = 0;
  count_ = count;
  error_ = nullptr;
  wake_.notify_all();
  const auto finished = [&] { return next_ >= count_ && running_ == 0; };
  while (!done_.wait_for(lock, kTickPeriod, finished)) {
    lock.unlock();
    tick();
    lock.lock();
  }
  task_ = nullptr;
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void WorkerPool::work(int worker) {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return stop_ || (task_ != nullptr && next_ < count_); });
    if (stop_) return;
    const std::size_t item = next_++;
    const auto* task = task_;
    ++running_;
    lock.unlock();
    std::exception_ptr error;
    try {
      (*task)(item, worker);
    } catch (...) {
      error = std::current_exception();
    }
    lock.lock();
    --running_;
    if (error) {
      if (!error_) error_ = error;
      next_ = count_;
    }
    if (next_ >= count_ && running_ == 0) done_.notify_all();
  }
}

int thread_count(std::int64_t requested) {
  TRIREME_ASSERT(requested >= 0 && requested <= kMaxThreads);
  if (requested != 0) return static_cast<int>(requested);
  const std::size_t allowed = allowed_cpus().size();
  return std::clamp(static_cast<int>(allowed > 0 ? allowed : std::thread::hardware_concurrency()),
                    1, kMaxThreads);
}

}  // namespace trireme::data_prep
