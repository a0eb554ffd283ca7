#pragma once
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

/// Programs as a user starts them: arguments, environment, signals, a time
/// limit, and what they left.
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
  /// Throws Error(internal) if it cannot be started. arguments[0] is the program.
  Process(const std::vector<std::string>& arguments,
          const std::map<std::string, std::string>& environment, std::filesystem::path log);
  /// Kills the whole group if it still runs.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }

  void signal(int number) const;
  [[nodiscard]] bool running();
  /// Waits for its end, `limit_s` from the start on; kills the group after that.
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

/// Sends a signal to one process. Throws Error(internal) for a pid that is not one process (0 and
/// -1 mean a group and everybody to kill(2)).
void signal_process(pid_t pid, int number);
/// The process of one MPI rank below `mpirun` (Open MPI); -1: none yet.
pid_t rank_pid(pid_t mpirun, int rank);
/// 'R', 'S', 'T' (stopped), 'Z', ...; ' ' if there is none.
char process_state(pid_t pid);

/// Waits until `condition` holds, at most `limit_s`; false if it did not.
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
