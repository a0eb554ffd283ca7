#include "core/error.hpp"

#include <array>

namespace trireme {
namespace {

constexpr std::array<int, 6> kCodes{1, 2, 3, 4, 5, 6};  // in the order of ErrorKind

}  // namespace

int exit_code(ErrorKind kind) noexcept {
  return kCodes[static_cast<std::size_t>(kind)];
}

void put_to_next_place(std::ostream& out, std::string_view& format) {
  while (!format.empty()) {
    const std::size_t brace = format.find_first_of("{}");
    out << format.substr(0, brace);
    if (brace == std::string_view::npos) {
      format = {};
      return;
    }
    const bool place = format.substr(brace, 2) == "{}";
    if (!place) out << format[brace];
    format.remove_prefix(brace + 2);
    if (place) return;
  }
}

void assertion_failed(const char* what, const char* file, int line) {
  fail(ErrorKind::internal, "assertion failed: {} ({}:{})", what, file, line);
}

}  // namespace trireme
