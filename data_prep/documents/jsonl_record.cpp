#include "data_prep/documents/jsonl_record.hpp"

#include <simdjson.h>

#include <array>

#include "core/error.hpp"
#include "data_prep/documents/utf8_repair.hpp"
#include "text/chat/record_forms.hpp"
#include "text/json/json_break.hpp"
#include "text/json/json_fields.hpp"
#include "text/json/odd_numbers.hpp"

namespace trireme {
namespace {

static_assert(kLinePadding >= simdjson::SIMDJSON_PADDING);

constexpr std::string_view kSurrogateMark = "\xEF\xBF\xBE";  // U+FFFE, no character
constexpr std::string_view kBadText = "the text has a lone surrogate or invalid UTF-8";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

struct TextFieldReader::Parser {
  simdjson::dom::parser parser;
  std::string repaired;  // keeps a repaired line alive with its padding
  std::string quoted_json;
  std::vector<UnreadField> unread;

  /// Sets `text` to the field's value.
  std::optional<LineProblem> find(const char* json, std::size_t size, const std::string& field,
                                  std::string_view& text);
};

std::optional<LineProblem> TextFieldReader::Parser::find(const char* json, std::size_t size,
                                                         const std::string& field,
                                                         std::string_view& text) {
  unread.clear();
  simdjson::dom::element root;
  simdjson::error_code code = parser.parse(json, size, false).get(root);
  bool quoted = false;
  if (code != simdjson::SUCCESS) {
    if (auto numbers = quote_odd_numbers({json, size})) {
      quoted = true;
      quoted_json = std::move(*numbers);
      code = parser.parse(quoted_json).get(root);
    }
  }
  if (code != simdjson::SUCCESS) {
    return LineProblem{
        formatted("not valid JSON: {}{}", simdjson::error_message(code), json_break({json, size})),
        code == simdjson::STRING_ERROR || code == simdjson::UTF8_ERROR};
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) return LineProblem{"not a JSON object"};
  bool found = false;
  simdjson::dom::element value;
  for (const auto& member : object) {
    if (member.key == field) {
      found = true;
      value = member.value;
    }
  }
  if (!found) {
    return LineProblem{
        formatted("no field '{}'{}", field,
                  chat_json::describe_record_form(object, record_kind(std::nullopt)))};
  }
  if (value.is_null()) return LineProblem{formatted("field '{}' is null", field)};
  if (value.get(text) != simdjson::SUCCESS || (quoted && text.starts_with(kOddNumber)))
    return LineProblem{formatted("field '{}' is not a text", field)};
  // Some versions let a lone low surrogate through.
  if (!simdjson::validate_utf8(text)) return LineProblem{std::string(kBadText), true};
  chat_json::add_unread(object, std::array<std::string_view, 1>{field}, "", unread);
  chat_json::merge_unread(unread);
  return std::nullopt;
}

TextFieldReader::TextFieldReader(std::string field, OnBadText on_bad_text)
    : field_(std::move(field)), on_bad_text_(on_bad_text), parser_(std::make_unique<Parser>()) {}

TextFieldReader::TextFieldReader(TextFieldReader&&) noexcept = default;
TextFieldReader& TextFieldReader::operator=(TextFieldReader&&) noexcept = default;
TextFieldReader::~TextFieldReader() = default;

const std::vector<UnreadField>& TextFieldReader::unread() const {
  return parser_->unread;
}

TextRecord TextFieldReader::read(const Line& line) {
  std::string_view text;
  const auto parse = [&](const char* json, std::size_t size) {
    return parser_->find(json, size, field_, text);
  };
  const auto count = [&](std::string_view part) { return occurrences(part, text); };
  TextRecord record = judge_line(line, on_bad_text_, parser_->repaired, parse, count);
  record.text = text;
  return record;
}

std::uint64_t occurrences(std::string_view part, std::string_view text) {
  std::uint64_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size()))
    ++count;
  return count;
}

TextRecord judge_line(
    const Line& line, OnBadText on_bad_text, std::string& repaired,
    const std::function<std::optional<LineProblem>(const char* json, std::size_t size)>& parse,
    const std::function<std::uint64_t(std::string_view part)>& count) {
  TextRecord record;
  std::string_view json = line.text;
  if (line.offset == 0 && json.starts_with("\xEF\xBB\xBF")) json.remove_prefix(3);
  if (is_blank(json)) return record;
  record.status = RecordStatus::bad;
  if (line.too_long) {
    record.reason = formatted("line is longer than {} bytes", kMaxLineBytes);
    return record;
  }
  std::optional<LineProblem> problem = parse(json.data(), json.size());
  if (problem && problem->bad_text) {
    const auto parse_with = [&](std::string_view replacement) {
      repaired = repair_json_text(json, replacement).text;
      const std::size_t size = repaired.size();
      repaired.append(kLinePadding, '\0');
      return parse(repaired.data(), size);
    };
    // What of the bad text is in the record? Read twice, once with a mark that
    // hardly anyone writes.
    std::uint64_t marks = 0;
    problem = parse_with(kSurrogateMark);
    if (!problem) {
      marks = count(kSurrogateMark);
      problem = parse_with(kReplacement);
    }
    const std::uint64_t replaced = problem ? 0 : marks - count(kSurrogateMark);
    if (!problem && (replaced == 0 || on_bad_text == OnBadText::replace)) {
      record.replaced = replaced;
    } else if (!problem) {
      record.status = on_bad_text == OnBadText::error ? RecordStatus::bad_text : RecordStatus::bad;
      record.reason = kBadText;
      return record;
    }
  }
  if (problem) {
    record.reason = std::move(problem->reason);
  } else {
    record.status = RecordStatus::text;
  }
  return record;
}

std::vector<std::string> on_bad_text_names() {
  return {"error", "skip", "replace"};
}

OnBadText on_bad_text_named(std::string_view name) {
  if (name == "skip") return OnBadText::skip;
  if (name == "replace") return OnBadText::replace;
  TRIREME_ASSERT(name == "error");
  return OnBadText::error;
}

}  // namespace trireme
