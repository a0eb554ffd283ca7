#pragma once
#include <sys/types.h>

#include <array>
#include <map>
#include <string>
#include <vector>

namespace trireme::testing {

/// Runs one program many times, but loads it only once (loaded_program.cpp). Everything behind the
/// start of main() is as in a process of its own. The loaded program ends with this object.
class ProgramServer {
 public:
  /// `library` is the library for LD_PRELOAD.
  ProgramServer(const std::string& program, const std::string& library);
  ~ProgramServer();
  ProgramServer(const ProgramServer&) = delete;
  ProgramServer& operator=(const ProgramServer&) = delete;

  /// Starts the program in a process group of its own; arguments[0] is its name. `environment`
  /// overrides variables of this process. `streams` are descriptors 0, 1 and 2. Returns the id of
  /// the process, which is a child of this process.
  pid_t start(const std::vector<std::string>& arguments,
              const std::map<std::string, std::string>& environment,
              const std::array<int, 3>& streams);

 private:
  int socket_ = -1;
  pid_t loaded_ = -1;
};

}  // namespace trireme::testing
