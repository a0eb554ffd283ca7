#pragma once
#include <cstddef>
#include <initializer_list>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>

/// The error type, its kinds, and the exit codes that are part of every command's interface.

namespace trireme {

enum class ErrorKind {
  internal,  // a bug in Trireme
  usage,     // the user can fix arguments, config or layout
  data,      // bad input data or checkpoint
  resource,  // memory, disk, device
  comm,      // a peer is lost, or an operation hangs
  numeric,   // the training diverged
};

/// Returns the exit code of a kind: internal 1, usage 2, data 3, resource 4, comm 5, numeric 6.
int exit_code(ErrorKind kind) noexcept;

inline constexpr int kExitDone = 0;
// stopped on request after a committed save: resume the run
inline constexpr int kExitStopped = 75;
inline constexpr int kExitNoProgress = 93;  // no progress since the last restart

/// An error of the program. The message names the value, what is allowed, and where it was set:
/// "optim.beta1 = 1.2, must be in [0, 1) (run.toml:12)".
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}

  [[nodiscard]] ErrorKind kind() const noexcept { return kind_; }

 private:
  ErrorKind kind_;
};

/// A message with a "{}" for each argument, checked at compile time; "{{" and "}}" are braces.
template <class... Args>
struct MessageFormat {
  template <std::size_t N>
  consteval MessageFormat(const char (&message)[N]) : text(message, N - 1) {
    std::size_t places = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] != '{' && text[i] != '}') continue;
      const char next = i + 1 < text.size() ? text[i + 1] : ' ';
      if (text[i] == '{' && next == '}') {
        ++places;
      } else if (next != text[i]) {
        throw "a single brace: write {{ or }}";
      }
      ++i;
    }
    if (places != sizeof...(Args)) throw "the number of {} differs from the number of arguments";
  }

  std::string_view text;
};

/// A reference to any streamable argument of a message, valid during the call. Callers build a list
/// of these instead of instantiating code, because there are more than a thousand calls.
class MessagePart {
 public:
  template <class T>
  MessagePart(const T& value) noexcept : value_(&value), put_(&put_value<T>) {}

  template <class T>
    requires std::is_convertible_v<const T&, std::string_view>
  MessagePart(const T& text) noexcept : text_(text) {}

  void put(std::ostream& out) const;

 private:
  template <class T>
  static void put_value(std::ostream& out, const void* value) {
    out << *static_cast<const T*>(value);
  }

  std::string_view text_;
  const void* value_ = nullptr;
  void (*put_)(std::ostream& out, const void* value) = nullptr;  // null: text_
};

using MessageParts = std::initializer_list<MessagePart>;

std::string message_of(std::string_view format, MessageParts parts);

std::string joined(MessageParts parts);

[[noreturn]] void fail_with(ErrorKind kind, std::string_view format, MessageParts parts);

/// Returns the message with its arguments inserted.
template <class... Args>
[[nodiscard]] std::string formatted(MessageFormat<std::type_identity_t<Args>...> format,
                                    const Args&... args) {
  return message_of(format.text, {args...});
}

/// Returns all arguments, streamed one after another.
template <class... Args>
[[nodiscard]] std::string cat(const Args&... args) {
  return joined({args...});
}

template <class... Args>
[[noreturn]] void fail(ErrorKind kind, MessageFormat<std::type_identity_t<Args>...> format,
                       const Args&... args) {
  fail_with(kind, format.text, {args...});
}

[[noreturn]] void assertion_failed(const char* what, const char* file, int line);

/// Throws Error(internal) if the condition is false. For bugs in Trireme, never for input.
#define TRIREME_ASSERT(condition)                                                  \
  do {                                                                             \
    if (!(condition)) ::trireme::assertion_failed(#condition, __FILE__, __LINE__); \
  } while (false)

}  // namespace trireme
