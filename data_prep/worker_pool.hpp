#pragma once
#include <condition_variable>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "core/process/max_threads.hpp"

namespace trireme::data_prep {

/// A pool of threads for all partitions, so that the caches of a thread (words of the tokenizer)
/// survive partitions.
class WorkerPool {
 public:
  explicit WorkerPool(int num_threads);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  [[nodiscard]] int num_threads() const noexcept { return static_cast<int>(threads_.size()); }

  /// Calls task(i, worker) once for each i in [0, count) with worker in [0, num_threads()) and
  /// returns when all calls have finished. Calls `tick` on this thread every few milliseconds.
  /// After the first exception of a task, starts no further tasks and rethrows the exception.
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

/// Returns `requested`; if it is 0, the number of CPUs of this process, at most kMaxThreads.
int thread_count(std::int64_t requested);

}  // namespace trireme::data_prep
