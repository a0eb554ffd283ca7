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

  /// The field's value; else `reason`. `maybe_bad_text`: a repair of the line may help.
  bool find(const char* json,
            std::size_t size,
            const std::string& field,
            TextRecord& record,
            bool& maybe_bad_text);
};

bool TextFieldReader::Parser::find(const char* json,
                                   std::size_t size,
                                   const std::string& field,
                                   TextRecord& record,
                                   bool& maybe_bad_text) {
  simdjson::dom::element root;
  const simdjson::error_code code = parser.parse(json, size, false).get(root);
  maybe_bad_text = code == simdjson::STRING_ERROR || code == simdjson::UTF8_ERROR;
  if (code != simdjson::SUCCESS) {
    record.reason = cat("not valid JSON: ", simdjson::error_message(code));
    return false;
  }
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) {
    record.reason = "not a JSON object";
    return false;
  }
  bool found = false;
  simdjson::dom::element value;
  for (const auto& member : object) {
    if (member.key == field) {
      found = true;
      value = member.value;
    }
  }
  if (!found) {
    record.reason = cat("no field '", field, "'");
    return false;
  }
  if (value.get(record.text) != simdjson::SUCCESS) {
    record.reason = cat("field '", field, "' is not a text");
    return false;
  }
  maybe_bad_text =
      !simdjson::validate_utf8(record.text);  // some versions let a lone low surrogate through
  if (maybe_bad_text) record.reason = kBadText;
  return !maybe_bad_text;
}

TextFieldReader::TextFieldReader(std::string field, OnBadText on_bad_text)
    : field_(std::move(field)), on_bad_text_(on_bad_text), parser_(std::make_unique<Parser>()) {}

TextFieldReader::TextFieldReader(TextFieldReader&&) noexcept = default;
TextFieldReader& TextFieldReader::operator=(TextFieldReader&&) noexcept = default;
TextFieldReader::~TextFieldReader() = default;

TextRecord TextFieldReader::read(const Line& line) {
  TextRecord record;
  std::string_view json = line.text;
  if (line.offset == 0 && json.starts_with("\xEF\xBB\xBF")) json.remove_prefix(3);
  if (is_blank(json)) return record;
  record.status = RecordStatus::bad;
  if (line.too_long) {
    record.reason = cat("line is longer than ", kMaxLineBytes, " bytes");
    return record;
  }
  bool maybe_bad_text = false;
  if (parser_->find(json.data(), json.size(), field_, record, maybe_bad_text)) {
    record.status = RecordStatus::text;
    return record;
  }
  if (!maybe_bad_text) return record;
  Repaired repaired = repair_json_text(json);
  const std::size_t size = repaired.text.size();
  repaired.text.append(kLinePadding, '\0');
  parser_->repaired = std::move(repaired.text);
  if (!parser_->find(parser_->repaired.data(), size, field_, record, maybe_bad_text)) return record;
  if (on_bad_text_ == OnBadText::replace) {
    record.status = RecordStatus::text;
    record.replaced = repaired.replaced;
  } else {
    record.status = on_bad_text_ == OnBadText::error ? RecordStatus::bad_text : RecordStatus::bad;
    record.reason = kBadText;
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
