#pragma once
#include <string>
#include <vector>

namespace trireme {

/// The end of another program.
struct ProgramEnd {
  int code = 127;          // exit code, or 128 + signal; 127 if it could not be started
  bool timed_out = false;  // killed because of the time limit
  std::string out;         // standard output and standard error, in one text
};

/// Runs words[0] from PATH with empty input and waits for its end, at most `limit_s` seconds. It is
/// for short answers of scontrol and sinfo. Throws Error(resource) if the system refuses a pipe.
ProgramEnd run_program(const std::vector<std::string>& words, double limit_s);

}  // namespace trireme
