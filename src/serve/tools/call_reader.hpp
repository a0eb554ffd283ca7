#pragma once
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// Finds where a call ends, in a text that grows: white space, a JSON object, white space and
/// "</tool_call>". Looks at each byte once.
class CallReader {
 public:
  enum class Result { more, complete, malformed };

  /// `text` is all since the opening marker, each time longer.
  Result read(std::string_view text);

  /// Of a complete one: the object's bytes, and those of all up to the end of the marker.
  [[nodiscard]] std::string_view object(std::string_view text) const {
    return text.substr(begin_, end_ - begin_);
  }

  [[nodiscard]] std::size_t size() const noexcept { return at_; }

  void reset() { *this = CallReader(); }

 private:
  enum class Where { before, object, text, escape, after };

  Result step(char c);

  Where where_ = Where::before;
  std::size_t at_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  std::size_t depth_ = 0;
  std::size_t marker_ = 0;  // bytes of the closing one that were read
};

/// A call in JSON.
struct ParsedCall {
  std::string name;
  std::string arguments;
};

/// {"name": one of `tools`, "arguments": an object, or a text that holds one; none is {}}. None if it
/// is anything else.
std::optional<ParsedCall> parse_call(std::string_view json, std::span<const std::string> tools);

}  // namespace trireme
