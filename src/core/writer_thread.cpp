#include "core/writer_thread.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace trireme {

struct WriterThread::State {
  struct Entry {
    Task task;
    bool exact = false;
  };

  explicit State(std::size_t most) : max_tasks(most) {}

  void run();
  void add(std::unique_lock<std::mutex>& lock, Entry entry, const std::shared_ptr<State>& self);
  void throw_error();

  /// Waits until the tasks that were added before this call have run.
  template <class Wait>
  auto wait_for_tasks(std::unique_lock<std::mutex>& lock, const Wait& wait) {
    const std::uint64_t last = num_added;
    return wait(lock, [this, last] { return num_done >= last; });
  }

  const std::size_t max_tasks;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Entry> queue;
  std::uint64_t num_added = 0;
  std::uint64_t num_done = 0;
  std::size_t num_dropped = 0;
  std::exception_ptr error;  // not thrown yet
  bool failed = false;       // an exact task has failed
  bool stopping = false;
  std::thread thread;
};

namespace {

/// The states of all objects of this process.
struct AllStates {
  std::mutex mutex;
  std::vector<WriterThread*> objects;
};

AllStates& all_states() {
  static auto* const states = new AllStates;  // never destroyed, because an exit may need it late
  return *states;
}

}  // namespace

void WriterThread::State::run() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return !queue.empty() || stopping; });
    if (queue.empty()) return;
    Entry entry = std::move(queue.front());
    queue.pop_front();
    if (!entry.exact || !failed) {
      lock.unlock();
      std::exception_ptr caught;
      try {
        entry.task();
      } catch (...) {
        caught = std::current_exception();
      }
      entry.task = nullptr;  // destroy what the task owns without the lock
      lock.lock();
      if (caught && entry.exact) {
        error = caught;
        failed = true;
      }
    }
    ++num_done;
    changed.notify_all();
  }
}

void WriterThread::State::add(std::unique_lock<std::mutex>& lock, Entry entry,
                              const std::shared_ptr<State>& self) {
  queue.push_back(std::move(entry));
  ++num_added;
  if (!thread.joinable()) thread = std::thread([self] { self->run(); });
  lock.unlock();
  changed.notify_all();
}

void WriterThread::State::throw_error() {
  if (error) std::rethrow_exception(std::exchange(error, nullptr));
}

WriterThread::WriterThread(std::size_t max_tasks) : state_(std::make_shared<State>(max_tasks)) {
  AllStates& all = all_states();
  const std::lock_guard lock(all.mutex);
  all.objects.push_back(this);
}

WriterThread::~WriterThread() {
  {
    AllStates& all = all_states();
    const std::lock_guard lock(all.mutex);
    std::erase(all.objects, this);
  }
  const bool complete = drain_for(kLast_s);
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  if (!state_->thread.joinable()) return;
  complete ? state_->thread.join() : state_->thread.detach();
}

void WriterThread::post(Task task) {
  std::unique_lock lock(state_->mutex);
  state_->throw_error();
  state_->changed.wait(lock, [this] { return state_->queue.size() < state_->max_tasks; });
  state_->add(lock, {std::move(task), /*exact=*/true}, state_);
}

void WriterThread::post_inexact(Task task) {
  std::unique_lock lock(state_->mutex);
  if (state_->queue.size() >= state_->max_tasks) {
    ++state_->num_dropped;
    return;
  }
  state_->add(lock, {std::move(task), /*exact=*/false}, state_);
}

void WriterThread::post_urgent(Task task) {
  std::unique_lock lock(state_->mutex);
  state_->add(lock, {std::move(task), /*exact=*/false}, state_);
}

void WriterThread::drain() {
  std::unique_lock lock(state_->mutex);
  state_->wait_for_tasks(lock, [this](auto& held, auto done) {
    state_->changed.wait(held, done);
    return true;
  });
  state_->throw_error();
}

bool WriterThread::drain_for(double timeout_s) noexcept {
  std::unique_lock lock(state_->mutex);
  if (state_->thread.get_id() == std::this_thread::get_id()) return false;
  return state_->wait_for_tasks(lock, [&](auto& held, auto done) {
    return state_->changed.wait_for(held, std::chrono::duration<double>(timeout_s), done);
  });
}

std::size_t WriterThread::take_num_dropped() noexcept {
  const std::lock_guard lock(state_->mutex);
  return std::exchange(state_->num_dropped, 0);
}

void WriterThread::drain_all(double timeout_s) noexcept {
  AllStates& all = all_states();
  const std::lock_guard lock(all.mutex);
  for (WriterThread* const one : all.objects) (void)one->drain_for(timeout_s);
}

}  // namespace trireme
