#pragma once
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/files/file.hpp"

namespace trireme::reward {

/// Returns at most the first 200 bytes of a line for a message: valid UTF-8 without control
/// characters.
std::string beginning_of(std::string_view line);

/// A program of the user that answers each line of its input with one line, and stays running.
///
/// `sh -c` runs the program in a process group of its own. The kernel kills the shell when this
/// process ends. Not thread-safe. The thread that constructs the object must outlive it.
class LineProgram {
 public:
  struct Config {
    std::string command;    // for sh -c
    std::string key;        // name of the configuration key, for messages: "rl.reward_command"
    double timeout_s = 60;  // maximum time without an answer
  };

  /// The program starts at the first exchange.
  explicit LineProgram(Config config) : config_(std::move(config)) {}

  LineProgram(const LineProgram&) = delete;
  LineProgram& operator=(const LineProgram&) = delete;

  /// Closes the input of the program, waits for its end (1 s), then kills its process group.
  ~LineProgram();

  /// Sends the lines and returns one answer for each, in order, without line ends. Lines have no
  /// line breaks. Throws Error(data) with the last lines of the standard error of the program if
  /// the program ends or writes too much, and Error(resource) if an answer is late. The program is
  /// then killed, and the next exchange starts it again.
  std::vector<std::string> exchange(const std::vector<std::string>& lines);

 private:
  struct Exchange;

  void start();
  void stop(double wait_s) noexcept;
  void send(Exchange& state);
  bool receive(Exchange& state);
  void read_errors();
  [[nodiscard]] bool wait_for_end(double seconds) noexcept;
  [[noreturn]] void fail_ended(const Exchange& state);
  [[noreturn]] void fail_late(const Exchange& state);
  [[nodiscard]] std::string errors_text() const;

  Config config_;
  pid_t pid_ = -1;
  int status_ = 0;
  Fd input_;  // a socket, because writing to a closed one raises no signal
  Fd output_;
  Fd errors_;
  std::string pending_;     // output after the last complete line
  std::string error_tail_;  // end of the standard error
};

}  // namespace trireme::reward
