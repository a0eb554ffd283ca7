#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::text::jinja {

/// A text (UTF-8) that knows the author of each byte: the template or the record. All operations
/// of templates on texts keep the marks, so text of a record can never become structure.
class MarkedText {
 public:
  MarkedText() = default;

  static MarkedText of_template(std::string_view text) { return MarkedText(text, kTemplate); }

  static MarkedText of_record(std::string_view text) { return MarkedText(text, kRecord); }

  [[nodiscard]] const std::string& bytes() const noexcept { return bytes_; }

  [[nodiscard]] bool is_record(std::size_t at) const { return marks_[at] == kRecord; }

  [[nodiscard]] bool has_record() const { return marks_.find(kRecord) != std::string::npos; }

  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }

  [[nodiscard]] bool empty() const noexcept { return bytes_.empty(); }

  MarkedText& append(const MarkedText& more) {
    bytes_ += more.bytes_;
    marks_ += more.marks_;
    return *this;
  }

  MarkedText& append_template(std::string_view text) { return append(of_template(text)); }

  /// Appends `text` with the mark of the record if `record` is true.
  MarkedText& append_marked(std::string_view text, bool record) {
    bytes_ += text;
    marks_.append(text.size(), record ? kRecord : kTemplate);
    return *this;
  }

  /// Returns the bytes [begin, end).
  [[nodiscard]] MarkedText part(std::size_t begin, std::size_t end) const {
    MarkedText result;
    result.bytes_ = bytes_.substr(begin, end - begin);
    result.marks_ = marks_.substr(begin, end - begin);
    return result;
  }

  /// Returns the text with other bytes of the same length, for changes of letter case.
  [[nodiscard]] MarkedText with_bytes(std::string bytes) const {
    MarkedText result = *this;
    result.bytes_ = std::move(bytes);
    return result;
  }

  /// Returns the part without the given characters (ASCII) at the ends.
  [[nodiscard]] MarkedText stripped(std::string_view characters, bool left, bool right) const {
    std::size_t begin = left ? bytes_.find_first_not_of(characters) : 0;
    if (begin == std::string::npos) return {};
    const std::size_t last = right ? bytes_.find_last_not_of(characters) : bytes_.size() - 1;
    if (bytes_.empty() || last == std::string::npos) return {};
    return part(begin, last + 1);
  }

 private:
  static constexpr char kTemplate = 0;
  static constexpr char kRecord = 1;

  MarkedText(std::string_view text, char mark) : bytes_(text), marks_(text.size(), mark) {}

  std::string bytes_;
  std::string marks_;  // one for each byte
};

}  // namespace trireme::text::jinja
