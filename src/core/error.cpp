#include "core/error.hpp"

#include <array>
#include <filesystem>
#include <sstream>
#include <utility>

namespace trireme {
namespace {

constexpr std::array<int, 6> kCodes{1, 2, 3, 4, 5, 6};  // indexed by ErrorKind

/// Writes `format` to `out` up to its next "{}" and removes the written part.
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

}  // namespace

int exit_code(ErrorKind kind) noexcept {
  return kCodes[static_cast<std::size_t>(kind)];
}

void MessagePart::put(std::ostream& out) const {
  if (put_ == nullptr) {
    out << text_;
  } else {
    put_(out, value_);
  }
}

std::string message_of(std::string_view format, MessageParts parts) {
  std::ostringstream out;
  for (const MessagePart& part : parts) {
    put_to_next_place(out, format);
    part.put(out);
  }
  put_to_next_place(out, format);
  return std::move(out).str();
}

std::string joined(MessageParts parts) {
  std::ostringstream out;
  for (const MessagePart& part : parts) part.put(out);
  return std::move(out).str();
}

void fail_with(ErrorKind kind, std::string_view format, MessageParts parts) {
  throw Error(kind, message_of(format, parts));
}

void assertion_failed(const char* what, const char* file, int line) {
  // cmake --install replaces the path of the checkout by "./././", which the normal form drops.
  fail(ErrorKind::internal, "assertion failed: {} ({}:{})", what,
       std::filesystem::path(file).lexically_normal().string(), line);
}

}  // namespace trireme
