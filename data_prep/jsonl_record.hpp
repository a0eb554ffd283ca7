#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data_prep/line_reader.hpp"

namespace trireme {

/// What to do with a line whose text holds lone surrogates or invalid UTF-8.
enum class OnBadText { error, skip, replace };

/// "error", "skip" or "replace"; throws Error(usage) on anything else.
OnBadText parse_on_bad_text(std::string_view name);

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
  std::uint64_t replaced = 0;  // U+FFFD put for bad text
};

/// Reads one text field of one-object-a-line JSON. The whole line must be valid JSON; of equal keys
/// the last one counts (as Python's json). Reused for every line of a thread; not shared between
/// threads.
class TextFieldReader {
 public:
  TextFieldReader(std::string field, OnBadText on_bad_text);
  TextFieldReader(TextFieldReader&&) noexcept;
  TextFieldReader& operator=(TextFieldReader&&) noexcept;
  TextFieldReader(const TextFieldReader&) = delete;
  TextFieldReader& operator=(const TextFieldReader&) = delete;
  ~TextFieldReader();

  TextRecord read(const Line& line);

 private:
  struct Parser;

  std::string field_;
  OnBadText on_bad_text_;
  std::unique_ptr<Parser> parser_;
};

}  // namespace trireme
