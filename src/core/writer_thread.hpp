#pragma once
#include <cstddef>
#include <functional>
#include <memory>

namespace trireme {

/// Runs tasks that write files in order on a thread of its own, so that a slow or frozen file
/// system does not delay the caller. The thread starts with the first task.
///
/// The queue has room for `max_tasks` tasks. If it is full, an exact task waits and an inexact task
/// is dropped. After an error of an exact task, later exact tasks are skipped, because their files
/// would have a gap. The caller gets the error once, from the next post() or drain().
class WriterThread {
 public:
  using Task = std::function<void()>;

  static constexpr std::size_t kMaxTasks = std::size_t{1} << 14;

  explicit WriterThread(std::size_t max_tasks = kMaxTasks);
  WriterThread(const WriterThread&) = delete;
  WriterThread& operator=(const WriterThread&) = delete;
  /// Runs the remaining tasks. If this takes longer than kLast_s, the destructor returns without
  /// them. Tasks must therefore own what they use.
  ~WriterThread();

  /// Adds an exact task. Throws the error of an earlier one.
  void post(Task task);
  /// Adds an inexact task. If the queue is full, the task is dropped and counted.
  void post_inexact(Task task);
  /// Adds an inexact task even if the queue is full, for the few warnings of a log.
  void post_urgent(Task task);
  /// Waits until all tasks so far have run. Throws the error of an exact task.
  void drain();
  /// Waits like drain(), at most `timeout_s`. Returns true if all tasks so far have run. On the
  /// thread itself it returns false at once.
  bool drain_for(double timeout_s) noexcept;

  /// Returns the number of inexact tasks that were dropped since the last call.
  [[nodiscard]] std::size_t take_num_dropped() noexcept;

  /// Calls drain_for() on all objects of this process, for an exit that runs no destructors.
  static void drain_all(double timeout_s) noexcept;

  static constexpr double kLast_s = 60;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace trireme
