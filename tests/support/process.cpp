#include "support/process.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/error.hpp"
#include "core/files/file.hpp"

namespace trireme::testing {

void sleep_briefly() {
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
}

namespace {

/// Reads state and parent, the first fields after the name, which may contain spaces.
std::pair<char, pid_t> state_and_parent(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {' ', -1};
  std::istringstream rest(line.substr(name_end + 1));
  char state = ' ';
  pid_t parent = -1;
  rest >> state >> parent;
  return {state, parent};
}

/// Kills the group of a child that has not been waited for, so its process id is still in use.
void kill_group(pid_t leader) {
  if (leader > 1) ::kill(-leader, SIGKILL);
}

}  // namespace

void signal_process(pid_t pid, int number) {
  if (pid <= 1) fail(ErrorKind::internal, "no process to send signal {} to: pid {}", number, pid);
  ::kill(pid, number);
}

char process_state(pid_t pid) {
  return state_and_parent(std::to_string(pid)).first;
}

pid_t rank_pid(pid_t mpirun, int rank) {
  const std::string wanted = formatted("OMPI_COMM_WORLD_RANK={}", rank);
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos ||
        state_and_parent(name).second != mpirun)
      continue;
    std::ifstream environment(entry.path() / "environ", std::ios::binary);
    for (std::string one; std::getline(environment, one, '\0');) {
      if (one == wanted) return static_cast<pid_t>(std::stol(name));
    }
  }
  return -1;
}

Process::Process(const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment, std::filesystem::path log)
    : log_(std::move(log)), start_(std::chrono::steady_clock::now()) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const std::string out = log_.string() + ".out";
  const std::string err = log_.string() + ".err";
  pid_ = ::fork();
  if (pid_ < 0) fail(ErrorKind::internal, "fork failed");
  if (pid_ > 0) {
    ::setpgid(pid_, pid_);  // set by both processes, so the group exists whichever runs first
    return;
  }
  ::setpgid(0, 0);
  for (const auto& [name, value] : environment) ::setenv(name.c_str(), value.c_str(), 1);
  ::dup2(::open("/dev/null", O_RDONLY), STDIN_FILENO);
  ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDOUT_FILENO);
  ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644), STDERR_FILENO);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

Process::~Process() {
  if (!running()) return;
  kill_group(pid_);
  ::waitpid(pid_, nullptr, 0);
}

double Process::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Process::signal(int number) const {
  if (!ended_) signal_process(pid_, number);  // the process id may belong to another process later
}

bool Process::running() {
  if (!ended_ && ::waitpid(pid_, &status_, WNOHANG) == pid_) {
    ended_ = true;
    seconds_ = seconds();
  }
  return !ended_;
}

Exit Process::wait(double limit_s) {
  Exit exit;
  while (running()) {
    if (seconds() > limit_s) {
      exit.timed_out = true;
      kill_group(pid_);
      ::waitpid(pid_, &status_, 0);
      ended_ = true;
      seconds_ = seconds();
      break;
    }
    sleep_briefly();
  }
  exit.code = WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  exit.seconds = seconds_;
  exit.out = read_file(log_.string() + ".out");
  exit.err = read_file(log_.string() + ".err");
  return exit;
}

}  // namespace trireme::testing
