#pragma once
#include <string>
#include <vector>

namespace trireme {

/// How another program ended.
struct ProgramEnd {
  int code = 127;          // exit code, 128 + signal; 127: it could not be started
  bool timed_out = false;  // it was killed for that
  std::string out;         // standard output, and error behind it
};

/// Runs words[0], found on PATH, with nothing as its input, and waits for its end, at most
/// `limit_s`. For small answers: scontrol, sinfo. Throws Error(resource) if the system refuses pipes.
ProgramEnd run_program(const std::vector<std::string>& words, double limit_s);

}  // namespace trireme
