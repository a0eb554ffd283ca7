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

namespace trireme {

/// What to do with a line whose text holds lone surrogates or invalid UTF-8.
enum class OnBadText { error, skip, replace };

/// "error", "skip" and "replace".
std::vector<std::string> on_bad_text_names();
/// The one of that name.
OnBadText on_bad_text_named(std::string_view name);

enum class RecordStatus {
  text,      // `text` is the field's value
  blank,     // nothing but white space: not a record, not counted
  bad,       // `reason` says why: not JSON, no such field, too long, or bad text to be skipped
  bad_text,  // bad text under OnBadText::error
};

struct TextRecord {
  RecordStatus status = RecordStatus::blank;
  std::string_view text;  // UTF-8; valid until the next read
  std::string reason;
  std::uint64_t replaced = 0;  // U+FFFD put for bad text, in what was read of the line
};

/// Why the JSON of a line is no record. `bad_text`: lone surrogates or invalid UTF-8, which a
/// repair may mend.
struct RecordProblem {
  std::string reason;
  bool bad_text = false;
};

/// What becomes of a line, whatever it holds: skips blank ones, and on bad text
/// does what `on_bad_text` says.
///   parse     reads `size` bytes of JSON with kRecordPadding readable bytes behind; none: it is good
///   repaired  keeps a repaired line alive, until the next call
///   count     how often a text is in what `parse` read last: bad text that it did not read is good
/// Returns status, reason and replaced; `text` is left to `parse`.
TextRecord judge_record(
    const Record& record, OnBadText on_bad_text, std::string& repaired,
    const std::function<std::optional<RecordProblem>(const char* json, std::size_t size)>& parse,
    const std::function<std::uint64_t(std::string_view part)>& count);

/// How often `part` is in `text`, without overlaps.
std::uint64_t occurrences(std::string_view part, std::string_view text);

/// Reads one text field of one-object-a-line JSON. The whole line must be valid JSON;
/// of equal keys the last one counts (as Python's json). Reused for every line of a thread;
/// not shared between threads.
class TextFieldReader {
 public:
  TextFieldReader(std::string field, OnBadText on_bad_text);
  TextFieldReader(TextFieldReader&&) noexcept;
  TextFieldReader& operator=(TextFieldReader&&) noexcept;
  TextFieldReader(const TextFieldReader&) = delete;
  TextFieldReader& operator=(const TextFieldReader&) = delete;
  ~TextFieldReader();

  TextRecord read(const Record& record);

  /// The other fields of the record that was read last and hold something, each once.
  [[nodiscard]] const std::vector<UnreadField>& unread() const;

 private:
  struct Parser;

  std::string field_;
  OnBadText on_bad_text_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace trireme
