#pragma once
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

/// Starts programs like a user does: with arguments, environment and signals, under a time limit.
/// Collects their output.
namespace trireme::testing {

struct Exit {
  int code = -1;  // exit code, or 128 + signal
  bool timed_out = false;
  double seconds = 0;
  std::string out;
  std::string err;
};

/// One started program with its own process group. Its output goes to `<log>.out` and `<log>.err`.
class Process {
 public:
  /// arguments[0] is the program. Throws Error(internal) if it cannot be started.
  Process(const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment, std::filesystem::path log);
  /// Kills the whole group if it is still running.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }

  void signal(int number) const;
  [[nodiscard]] bool running();
  /// Waits until the process exits, at most `limit_s` after its start; then kills the group.
  Exit wait(double limit_s);

 private:
  [[nodiscard]] double seconds() const;

  std::filesystem::path log_;
  std::chrono::steady_clock::time_point start_;
  pid_t pid_ = -1;
  int status_ = 0;
  bool ended_ = false;
  double seconds_ = 0;
};

/// Sends a signal to one process. Throws Error(internal) for 0 and -1, which kill(2) takes as a
/// group and as all processes.
void signal_process(pid_t pid, int number);
/// Returns the process id of one MPI rank below `mpirun` (Open MPI); -1 if it does not exist yet.
pid_t rank_pid(pid_t mpirun, int rank);
/// Returns 'R', 'S', 'T' (stopped), 'Z', ...; ' ' if the process does not exist.
char process_state(pid_t pid);

/// Waits until `condition` is true, at most `limit_s`. Returns false if the time is up.
template <class Condition>
bool wait_for(Condition&& condition, double limit_s);

void sleep_briefly();

template <class Condition>
bool wait_for(Condition&& condition, double limit_s) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(limit_s);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    sleep_briefly();
  }
  return true;
}

}  // namespace trireme::testing
