#include "data_prep/jsonl_record.hpp"

#include <simdjson.h>

#include "core/error.hpp"
#include "data_prep/utf8_repair.hpp"

namespace trireme {
namespace {

static_assert(kLinePadding >= simdjson::SIMDJSON_PADDING);

constexpr std::string_view kBadText = "the text has a lone surrogate or invalid UTF-8";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

struct TextFieldReader::Parser {
  simdjson::dom::parser parser;
  std::string repaired;  // keeps a repaired line alive with its padding

  /// Sets `text` to the field's value.
  std::optional<LineProblem> find(const char* json,
                                  std::size_t size,
                                  const std::string& field,
                                  std::string_view& text);
};

std::optional<LineProblem> TextFieldReader::Parser::find(const char* json,
                                                         std::size_t size,
                                                         const std::string& field,
                                                         std::string_view& text) {
  simdjson::dom::element root;
  const simdjson::error_code code = parser.parse(json, size, false).get(root);
  if (code != simdjson::SUCCESS) {
    return LineProblem{cat("not valid JSON: ", simdjson::error_message(code)),
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
  if (!found) return LineProblem{cat("no field '", field, "'")};
  if (value.get(text) != simdjson::SUCCESS)
    return LineProblem{cat("field '", field, "' is not a text")};
  // Some versions let a lone low surrogate through.
  if (!simdjson::validate_utf8(text)) return LineProblem{std::string(kBadText), true};
  return std::nullopt;
}

TextFieldReader::TextFieldReader(std::string field, OnBadText on_bad_text)
    : field_(std::move(field)), on_bad_text_(on_bad_text), parser_(std::make_unique<Parser>()) {}

TextFieldReader::TextFieldReader(TextFieldReader&&) noexcept = default;
TextFieldReader& TextFieldReader::operator=(TextFieldReader&&) noexcept = default;
TextFieldReader::~TextFieldReader() = default;

TextRecord TextFieldReader::read(const Line& line) {
  std::string_view text;
  TextRecord record =
      judge_line(line, on_bad_text_, parser_->repaired, [&](const char* json, std::size_t size) {
        return parser_->find(json, size, field_, text);
      });
  record.text = text;
  return record;
}

TextRecord judge_line(
    const Line& line,
    OnBadText on_bad_text,
    std::string& repaired,
    const std::function<std::optional<LineProblem>(const char* json, std::size_t size)>& parse) {
  TextRecord record;
  std::string_view json = line.text;
  if (line.offset == 0 && json.starts_with("\xEF\xBB\xBF")) json.remove_prefix(3);
  if (is_blank(json)) return record;
  record.status = RecordStatus::bad;
  if (line.too_long) {
    record.reason = cat("line is longer than ", kMaxLineBytes, " bytes");
    return record;
  }
  std::optional<LineProblem> problem = parse(json.data(), json.size());
  if (problem && problem->bad_text) {
    Repaired mended = repair_json_text(json);
    const std::size_t size = mended.text.size();
    mended.text.append(kLinePadding, '\0');
    repaired = std::move(mended.text);
    problem = parse(repaired.data(), size);
    if (!problem && on_bad_text == OnBadText::replace) {
      record.replaced = mended.replaced;
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

OnBadText parse_on_bad_text(std::string_view name) {
  if (name == "error") return OnBadText::error;
  if (name == "skip") return OnBadText::skip;
  if (name == "replace") return OnBadText::replace;
  fail(ErrorKind::usage, "--on-bad-text ", name, ", must be error, skip or replace");
}

}  // namespace trireme
