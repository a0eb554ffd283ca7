#include "data_prep/documents/jsonl_record.hpp"

#include <simdjson.h>

#include <array>

#include "core/by_name.hpp"
#include "core/error.hpp"
#include "data_prep/documents/utf8_repair.hpp"
#include "text/chat/record_forms.hpp"
#include "text/json/json_break.hpp"
#include "text/json/json_fields.hpp"
#include "text/json/odd_numbers.hpp"

namespace trireme::data_prep {
namespace {

static_assert(kRecordPadding >= simdjson::SIMDJSON_PADDING);

constexpr std::string_view kSurrogateMark = "\xEF\xBF\xBE";  // U+FFFE, a noncharacter
constexpr std::string_view kBadText = "the text has a lone surrogate or invalid UTF-8";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

struct TextFieldReader::Parser {
  simdjson::dom::parser parser;
  std::string repaired;  // keeps a repaired line alive with its padding
  std::string quoted_json;
  std::vector<text::UnreadField> unread;

  /// Sets `text` to the value of the field.
  std::optional<RecordProblem> find(const char* json, std::size_t size, const std::string& field,
                                    std::string_view& text);
};

std::optional<RecordProblem> TextFieldReader::Parser::find(const char* json, std::size_t size,
                                                           const std::string& field,
                                                           std::string_view& text) {
  unread.clear();
  simdjson::dom::element root;
  simdjson::error_code code = parser.parse(json, size, false).get(root);
  bool quoted = false;
  if (code != simdjson::SUCCESS) {
    if (auto numbers = text::quote_odd_numbers({json, size})) {
      quoted = true;
      quoted_json = std::move(*numbers);
      code = parser.parse(quoted_json).get(root);
    }
  }
  if (code != simdjson::SUCCESS) {
    return RecordProblem{formatted("not valid JSON: {}{}", simdjson::error_message(code),
                                   text::record_break({json, size})),
                         code == simdjson::STRING_ERROR || code == simdjson::UTF8_ERROR};
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) return RecordProblem{"not a JSON object"};
  bool found = false;
  simdjson::dom::element value;
  for (const auto& member : object) {
    if (member.key == field) {
      found = true;
      value = member.value;
    }
  }
  if (!found) {
    return RecordProblem{
        formatted("no field '{}'{}", field,
                  text::chat_json::describe_record_form(object, text::record_kind(std::nullopt)))};
  }
  if (value.is_null()) return RecordProblem{formatted("field '{}' is null", field)};
  if (value.get(text) != simdjson::SUCCESS || (quoted && text.starts_with(text::kOddNumber)))
    return RecordProblem{formatted("field '{}' is not a text", field)};
  // Some versions of simdjson accept a lone low surrogate.
  if (!simdjson::validate_utf8(text)) return RecordProblem{std::string(kBadText), true};
  text::chat_json::add_unread(object, std::array<std::string_view, 1>{field}, "", unread);
  text::chat_json::merge_unread(unread);
  return std::nullopt;
}

TextFieldReader::TextFieldReader(std::string field, OnBadText on_bad_text)
    : field_(std::move(field)), on_bad_text_(on_bad_text), parser_(std::make_unique<Parser>()) {}

TextFieldReader::TextFieldReader(TextFieldReader&&) noexcept = default;
TextFieldReader& TextFieldReader::operator=(TextFieldReader&&) noexcept = default;
TextFieldReader::~TextFieldReader() = default;

const std::vector<text::UnreadField>& TextFieldReader::unread() const {
  return parser_->unread;
}

TextRecord TextFieldReader::read(const Record& record) {
  std::string_view text;
  const auto parse = [&](const char* json, std::size_t size) {
    return parser_->find(json, size, field_, text);
  };
  const auto count = [&](std::string_view part) { return occurrences(part, text); };
  TextRecord result = judge_record(record, on_bad_text_, parser_->repaired, parse, count);
  result.text = text;
  return result;
}

std::uint64_t occurrences(std::string_view part, std::string_view text) {
  std::uint64_t count = 0;
  for (std::size_t at = text.find(part); at != std::string_view::npos;
       at = text.find(part, at + part.size()))
    ++count;
  return count;
}

TextRecord judge_record(
    const Record& record, OnBadText on_bad_text, std::string& repaired,
    const std::function<std::optional<RecordProblem>(const char* json, std::size_t size)>& parse,
    const std::function<std::uint64_t(std::string_view part)>& count) {
  TextRecord result;
  std::string_view json = record.text;
  if (record.position == 0 && json.starts_with("\xEF\xBB\xBF")) json.remove_prefix(3);
  if (is_blank(json)) return result;
  result.status = RecordStatus::bad;
  if (record.too_long) {
    result.reason = formatted("line is longer than {} bytes", kMaxRecordBytes);
    return result;
  }
  std::optional<RecordProblem> problem = parse(json.data(), json.size());
  if (problem && problem->bad_text) {
    const auto parse_with = [&](std::string_view replacement) {
      repaired = repair_json_text(json, replacement).text;
      const std::size_t size = repaired.size();
      repaired.append(kRecordPadding, '\0');
      return parse(repaired.data(), size);
    };
    // Count the bad text inside the record: parse again with a mark that texts hardly ever contain.
    std::uint64_t marks = 0;
    problem = parse_with(kSurrogateMark);
    if (!problem) {
      marks = count(kSurrogateMark);
      problem = parse_with(kReplacement);
    }
    const std::uint64_t replaced = problem ? 0 : marks - count(kSurrogateMark);
    if (!problem && (replaced == 0 || on_bad_text == OnBadText::replace)) {
      result.replaced = replaced;
    } else if (!problem) {
      result.status = on_bad_text == OnBadText::error ? RecordStatus::bad_text : RecordStatus::bad;
      result.reason = kBadText;
      return result;
    }
  }
  if (problem) {
    result.reason = std::move(problem->reason);
  } else {
    result.status = RecordStatus::text;
  }
  return result;
}

std::vector<std::string> on_bad_text_names() {
  return {"error", "skip", "replace"};
}

OnBadText on_bad_text_named(std::string_view name) {
  return by_name<OnBadText>(on_bad_text_names(), name);
}

}  // namespace trireme::data_prep
