#include "core/process/installation.hpp"

#include "core/error.hpp"
#include "core/files/file.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxRevisionBytes = 4096;

}  // namespace

Installation installation_of(const fs::path& programs) {
  const fs::path prefix = programs.parent_path();
  const fs::path share = prefix / "share" / "trireme";
  std::error_code code;
  if (fs::exists(share / "revision", code)) return {prefix, share, programs, true};
  const fs::path checkout = prefix.parent_path().parent_path();  // CHECKOUT/build/PRESET/bin
  return {checkout, checkout, programs, false};
}

Installation own_installation() {
  std::error_code code;
  return installation_of(fs::read_symlink("/proc/self/exe", code).parent_path());
}

std::string revision_of(const Installation& installation) {
  const fs::path build = installation.programs.parent_path();
  for (const fs::path& file : {installation.home / "revision", build / "revision"}) {
    std::error_code code;
    if (!fs::is_regular_file(file, code)) continue;
    try {
      const std::string text = read_file(file, kMaxRevisionBytes);
      return text.substr(0, text.find('\n'));
    } catch (const Error&) {  // an unreadable file is as good as none
    }
  }
  return "unknown";
}

}  // namespace trireme
