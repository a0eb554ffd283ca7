#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme::comm {

/// The names of this program's functions. They come from the symbol table of the program file,
/// because the dynamic linker does not know them. If the file has no symbol table, there are no
/// names, and no error is thrown.
class OwnSymbols {
 public:
  explicit OwnSymbols(const std::filesystem::path& program = "/proc/self/exe");

  /// Returns the function at `address`, an offset in the linked program; "" if unknown.
  [[nodiscard]] std::string name_at(std::uint64_t address) const;

 private:
  struct Function {
    std::uint64_t begin = 0;
    std::uint64_t size = 0;
    std::string name;
  };

  std::vector<Function> functions_;  // sorted by begin
};

/// Returns "trireme::Step::run(...)" for its mangled name, and other text unchanged. The result is
/// cut at 200 characters, because template names can be long.
std::string demangle(const std::string& name);

/// Describes one frame of a backtrace: "trireme::Step::run(...)", "PMPI_Test (libmpi.so.40)" or
/// "libtorch_cpu.so+0x1234".
std::string describe_frame(void* address, const OwnSymbols& own);

}  // namespace trireme::comm
