#pragma once
#include <string>
#include <vector>

namespace trireme {

/// The parts of a program that trireme-data does not have.
struct ProgramParts {
  std::string libtorch;                  // version; "": not linked
  std::string nccl;                      // version; "": not linked
  std::vector<std::string> cpu_kernels;  // native CPU kernels that this CPU can run, the best last
};

/// Returns the versions of a program, its compiler and its libraries as one JSON object on one line.
/// Absent libraries are null.
std::string version_json(const std::string& program, const ProgramParts& parts);

}  // namespace trireme
