#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data_prep/input/input_format.hpp"
#include "text/json/unread_field.hpp"

namespace trireme::data_prep {

/// Handling of a line with lone surrogates or invalid UTF-8 in its text.
enum class OnBadText { error, skip, replace };

/// Returns "error", "skip" and "replace".
std::vector<std::string> on_bad_text_names();
/// Returns the value with that name.
OnBadText on_bad_text_named(std::string_view name);

enum class RecordStatus {
  text,      // `text` is the value of the field
  blank,     // only white space: not a record, not counted
  bad,       // `reason`: not JSON, no such field, too long, or bad text to be skipped
  bad_text,  // bad text under OnBadText::error
};

struct TextRecord {
  RecordStatus status = RecordStatus::blank;
  std::string_view text;  // UTF-8; valid until the next read
  std::string reason;
  std::uint64_t replaced = 0;  // number of U+FFFD written for bad text in the fields read
};

/// The reason why a line is not a valid record. `bad_text`: lone surrogates or invalid UTF-8, which
/// a repair may fix.
struct RecordProblem {
  std::string reason;
  bool bad_text = false;
};

/// Classifies a line. Skips blank lines and handles bad text as `on_bad_text` requires.
///   parse     reads `size` bytes of JSON followed by kRecordPadding readable bytes; nullopt: valid
///   repaired  owns a repaired line until the next call
///   count     number of occurrences of a text in the fields that `parse` read last; bad text
///             outside of these fields is allowed
/// Returns status, reason and replaced; `parse` provides the text.
TextRecord judge_record(
    const Record& record, OnBadText on_bad_text, std::string& repaired,
    const std::function<std::optional<RecordProblem>(const char* json, std::size_t size)>& parse,
    const std::function<std::uint64_t(std::string_view part)>& count);

/// Returns the number of non-overlapping occurrences of `part` in `text`.
std::uint64_t occurrences(std::string_view part, std::string_view text);

/// Reads one text field of JSON lines with one object each. The whole line must be valid JSON. If a
/// key occurs twice, the last value counts (like Python's json). Each thread reuses its own reader.
class TextFieldReader {
 public:
  TextFieldReader(std::string field, OnBadText on_bad_text);
  TextFieldReader(TextFieldReader&&) noexcept;
  TextFieldReader& operator=(TextFieldReader&&) noexcept;
  TextFieldReader(const TextFieldReader&) = delete;
  TextFieldReader& operator=(const TextFieldReader&) = delete;
  ~TextFieldReader();

  TextRecord read(const Record& record);

  /// Returns the other non-empty fields of the last record, each once.
  [[nodiscard]] const std::vector<text::UnreadField>& unread() const;

 private:
  struct Parser;

  std::string field_;
  OnBadText on_bad_text_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace trireme::data_prep
