#include "core/error.hpp"

#include <array>

namespace trireme {
namespace {

struct KindRow {
  ErrorKind kind;
  int code;
  std::string_view name;
};

constexpr std::array<KindRow, 6> kKinds{{{ErrorKind::internal, 1, "internal"},
                                         {ErrorKind::usage, 2, "usage"},
                                         {ErrorKind::data, 3, "data"},
                                         {ErrorKind::resource, 4, "resource"},
                                         {ErrorKind::comm, 5, "comm"},
                                         {ErrorKind::numeric, 6, "numeric"}}};

const KindRow& row(ErrorKind kind) noexcept {
  return kKinds[static_cast<std::size_t>(kind)];
}

}  // namespace

int exit_code(ErrorKind kind) noexcept {
  return row(kind).code;
}

std::string_view kind_name(ErrorKind kind) noexcept {
  return row(kind).name;
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
