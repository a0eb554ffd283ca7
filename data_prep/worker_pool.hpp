#pragma once
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/process/max_threads.hpp"

namespace trireme {

/// Threads that live as long as the pool, so that what a thread caches (words of the tokenizer)
/// lasts over partitions.
class WorkerPool {
 public:
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;
  WorkerPool(WorkerPool&&) = delete;
  WorkerPool& operator=(WorkerPool&&) = delete;

  [[nodiscard]] int num_threads() const noexcept { return static_cast<int>(threads_.size()); }

  /// Calls task(i, worker) once for each i in [0, count), workers in [0, num_threads()), and
  /// returns when all are done. Calls `tick` on this thread every few milliseconds meanwhile. The
  /// first exception of a task stops the handing out of further ones and is rethrown here.
  void run(std::size_t count, const std::function<void(std::size_t, int)>& task,
           const std::function<void()>& tick);

 private:
  void work(int worker);

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(std::size_t, int)>* task_ = nullptr;
  std::size_t next_ = 0;
  std::size_t count_ = 0;
  std::size_t running_ = 0;
  std::exception_ptr error_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

/// `requested`, at most kMaxThreads; or the processors this process may use if it is 0.
int thread_count(std::int64_t requested);

}  // namespace trireme
