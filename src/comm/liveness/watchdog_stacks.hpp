#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

namespace trireme {

/// Where every thread of this process stands: name, number and call stack of each, as text.
///
/// Each thread is asked by a real-time signal and notes its own stack; one that blocks the signal
/// or does not answer within a quarter of a second is named without a stack. Function names of the
/// program come from its symbol table. Not async-signal-safe: call it from an ordinary thread.
std::string stacks_of_all_threads();

/// Loads the unwinder and sets the signal's handler; done by itself at the first use, better before
/// something goes wrong.
void prepare_stacks();

/// Appends stacks_of_all_threads() under `heading` to a file, whose folder is made. Never throws.
void write_stacks(const std::filesystem::path& file, const std::string& heading) noexcept;

/// Answers SIGUSR1 while it lives: `on_request` runs on a thread of its own and training goes on.
/// The signal must be blocked in all threads before they start (install_stop_signals).
class StackRequests {
 public:
  explicit StackRequests(std::function<void()> on_request);
  ~StackRequests();
  StackRequests(const StackRequests&) = delete;
  StackRequests& operator=(const StackRequests&) = delete;

 private:
  std::function<void()> on_request_;
  std::jthread thread_;
};

}  // namespace trireme
