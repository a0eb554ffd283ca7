#include "job/finish/refusal.hpp"

#include <algorithm>
#include <fstream>
#include <string_view>

namespace trireme {
namespace {

constexpr std::streamoff kTailBytes = std::streamoff{64} << 10;
constexpr std::string_view kError = "trireme: error: ";

}  // namespace

std::string refusal_in(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return "";
  in.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(in.tellg()) - kTailBytes));
  std::string last;
  for (std::string line; std::getline(in, line);) {
    // The job script begins the output of each start with this line.
    if (line.starts_with("job       ") && line.find(", restart ") != std::string::npos)
      last.clear();
    const std::size_t at = line.find(kError);
    if (at != std::string::npos) last = line.substr(at + kError.size());
  }
  return last;
}

}  // namespace trireme
