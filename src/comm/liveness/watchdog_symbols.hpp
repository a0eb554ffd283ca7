#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

/// Names of this program's own functions, which the dynamic linker does not know, from the symbol
/// table of its file. A stripped or foreign file gives no names, never an error.
class OwnSymbols {
 public:
  explicit OwnSymbols(const std::filesystem::path& program = "/proc/self/exe");

  /// The function that holds `address`, an offset in the program as linked; "" if unknown.
  [[nodiscard]] std::string name_at(std::uint64_t address) const;

 private:
  struct Function {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
    std::string name;
  };

  std::vector<Function> functions_;  // by begin
};

/// "trireme::Step::run(...)" for its mangled name; the text itself if it is not mangled. Cut at 200
/// characters: templates grow long.
std::string demangle(const std::string& name);

/// One frame of a backtrace: "trireme::Step::run(...)", "PMPI_Test (libmpi.so.40)" or
/// "libtorch_cpu.so+0x1234".
std::string describe_frame(void* address, const OwnSymbols& own);

}  // namespace trireme
