#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

namespace trireme::comm {

/// Returns name, number and call stack of every thread of this process, as text.
///
/// A real-time signal makes each thread record its own stack. A thread that blocks the signal or
/// does not answer within 0.25 s is listed without a stack. Names of the program's functions come
/// from its symbol table. Not async-signal-safe: call it from an ordinary thread.
std::string stacks_of_all_threads();

/// Loads the unwinder and installs the signal handler. Without this call, the first use does it.
void prepare_stacks();

/// Appends stacks_of_all_threads() under `heading` to a file, creating its directory. Never throws.
void write_stacks(const std::filesystem::path& file, const std::string& heading) noexcept;

/// Handles SIGUSR1 during its lifetime: `on_request` runs on a separate thread, and training
/// continues. The signal must be blocked in all threads before they start (install_stop_signals()).
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

}  // namespace trireme::comm
