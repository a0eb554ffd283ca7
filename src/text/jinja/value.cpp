#include "text/jinja/value.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "text/json/python_values.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text::jinja {
namespace {

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text;
  append_json_number(value, text);
  return text;
}

JinjaValue from_parsed(const Json& json) {
  if (json.is_null()) return nullptr;
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_number_integer() &&
      (!json.is_number_unsigned() || json.get<std::uint64_t>() <= INT64_MAX))
    return json.get<std::int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_string()) return MarkedText::of_record(json.get_ref<const std::string&>());
  if (json.is_array()) {
    JinjaList list;
    for (const auto& item : json) list.push_back(from_parsed(item));
    return list;
  }
  JinjaDict dict;
  for (const auto& [key, value] : json.items())
    dict.emplace_back(MarkedText::of_record(key), from_parsed(value));
  return dict;
}

/// Appends the text of a number, True, False or None; false for other types.
bool append_scalar(const JinjaValue& value, MarkedText& out, bool json) {
  if (value.is_none()) return out.append_template(json ? "null" : "None"), true;
  if (const bool* flag = value.as_bool())
    return out.append_template(json ? (*flag ? "true" : "false") : (*flag ? "True" : "False")),
           true;
  if (const std::int64_t* number = value.as_int())
    return out.append_template(std::to_string(*number)), true;
  if (const double* number = value.as_double())
    return out.append_template(float_text(*number)), true;
  return false;
}

void append_line(MarkedText& out, int indent, int depth) {
  if (indent < 0) return;
  out.append_template(
      "\n" + std::string(static_cast<std::size_t>(indent) * static_cast<std::size_t>(depth), ' '));
}

/// Appends a JSON string. Escaped text keeps the mark of its bytes.
void append_json_marked(const MarkedText& text, MarkedText& out) {
  out.append_template("\"");
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = begin + 1;
    while (end < text.size() && text.is_record(end) == text.is_record(begin)) ++end;
    std::string quoted;
    append_json_text(std::string_view(text.bytes()).substr(begin, end - begin), quoted);
    out.append_marked(std::string_view(quoted).substr(1, quoted.size() - 2), text.is_record(begin));
    begin = end;
  }
  out.append_template("\"");
}

void append_text_repr(const MarkedText& text, MarkedText& out) {
  const std::string& bytes = text.bytes();
  const char quote =
      bytes.find('\'') != std::string::npos && bytes.find('"') == std::string::npos ? '"' : '\'';
  const std::string mark(1, quote);
  out.append_template(mark);
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    std::string escaped(1, c);
    if (c == quote || c == '\\') escaped = std::string("\\") + c;
    if (c == '\n') escaped = "\\n";
    if (c == '\r') escaped = "\\r";
    if (c == '\t') escaped = "\\t";
    const auto byte = static_cast<unsigned char>(c);
    constexpr std::string_view kHex = "0123456789abcdef";
    if ((byte < 0x20 && escaped.size() == 1) || byte == 0x7F)
      escaped = std::string("\\x") + kHex[byte >> 4] + kHex[byte & 15];
    out.append_marked(escaped, text.is_record(i));
  }
  out.append_template(mark);
}

}  // namespace

void jinja_fail(std::string reason) {
  throw JinjaFailure{std::move(reason)};
}

JinjaValue JinjaValue::undefined(std::string hint) {
  JinjaValue value;
  value.data_ = JinjaUndefined{std::move(hint)};
  return value;
}

std::optional<double> JinjaValue::number() const {
  if (const double* value = as_double()) return *value;
  if (const auto value = integer()) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<std::int64_t> JinjaValue::integer() const {
  if (const bool* value = as_bool()) return *value ? 1 : 0;
  if (const std::int64_t* value = as_int()) return *value;
  return std::nullopt;
}

bool JinjaValue::is_true() const {
  if (is_undefined() || is_none()) return false;
  if (const auto value = number()) return *value != 0;
  if (const MarkedText* text = as_text()) return !text->empty();
  if (const JinjaList* list = as_list()) return !list->empty();
  if (const JinjaDict* dict = as_dict()) return !dict->empty();
  return true;
}

const char* JinjaValue::type_name() const {
  constexpr const char* kNames[] = {"undefined", "None",   "a bool", "an int",     "a float",
                                    "a text",    "a list", "a dict", "a function", "a namespace"};
  return kNames[data_.index()];
}

MarkedText JinjaValue::str() const {
  if (is_undefined()) return {};
  if (const MarkedText* text = as_text()) return *text;
  MarkedText out;
  append_repr(out);
  return out;
}

void JinjaValue::append_repr(MarkedText& out) const {
  if (append_scalar(*this, out, false)) return;
  if (const MarkedText* text = as_text()) return append_text_repr(*text, out);
  if (const JinjaList* list = as_list()) {
    out.append_template("[");
    for (std::size_t i = 0; i < list->size(); ++i) {
      if (i != 0) out.append_template(", ");
      (*list)[i].append_repr(out);
    }
    out.append_template("]");
    return;
  }
  if (const JinjaDict* dict = as_dict()) {
    out.append_template("{");
    for (std::size_t i = 0; i < dict->size(); ++i) {
      if (i != 0) out.append_template(", ");
      (*dict)[i].first.append_repr(out);
      out.append_template(": ");
      (*dict)[i].second.append_repr(out);
    }
    out.append_template("}");
    return;
  }
  jinja_fail(cat(type_name(), " has no text"));
}

void JinjaValue::append_json(MarkedText& out, int indent, bool sort_keys, int depth) const {
  if (append_scalar(*this, out, true)) return;
  if (const MarkedText* text = as_text()) return append_json_marked(*text, out);
  const JinjaList* list = as_list();
  const JinjaDict* dict = as_dict();
  if (list == nullptr && dict == nullptr) jinja_fail(cat(type_name(), " cannot become JSON"));
  if (list != nullptr ? list->empty() : dict->empty()) {
    out.append_template(list != nullptr ? "[]" : "{}");
    return;
  }
  out.append_template(list != nullptr ? "[" : "{");
  const auto begin_item = [&](bool first) {
    if (!first) out.append_template(indent < 0 ? ", " : ",");
    append_line(out, indent, depth + 1);
  };
  if (list != nullptr) {
    for (std::size_t i = 0; i < list->size(); ++i) {
      begin_item(i == 0);
      (*list)[i].append_json(out, indent, sort_keys, depth + 1);
    }
  } else {
    JinjaDict members = *dict;
    if (sort_keys)
      std::ranges::stable_sort(members, [](const auto& a, const auto& b) {
        return a.first.str().bytes() < b.first.str().bytes();
      });
    for (std::size_t i = 0; i < members.size(); ++i) {
      begin_item(i == 0);
      append_json_marked(members[i].first.str(), out);
      out.append_template(": ");
      members[i].second.append_json(out, indent, sort_keys, depth + 1);
    }
  }
  append_line(out, indent, depth);
  out.append_template(list != nullptr ? "]" : "}");
}

JinjaList JinjaValue::items() const {
  if (is_undefined()) return {};
  if (const JinjaList* list = as_list()) return *list;
  JinjaList result;
  if (const JinjaDict* dict = as_dict()) {
    for (const auto& member : *dict) result.push_back(member.first);
    return result;
  }
  const MarkedText* text = as_text();
  if (text == nullptr) jinja_fail(cat(type_name(), " has no items"));
  for (std::size_t at = 0; at < text->size();) {
    std::size_t length = 0;
    utf8_decode(text->bytes().data() + at, length);
    result.emplace_back(text->part(at, at + length));
    at += length;
  }
  return result;
}

const JinjaValue* JinjaValue::find(std::string_view key) const {
  const JinjaDict* dict = as_dict();
  if (dict == nullptr) return nullptr;
  const auto found = std::ranges::find_if(*dict, [&](const auto& member) {
    const MarkedText* text = member.first.as_text();
    return text != nullptr && text->bytes() == key;
  });
  return found == dict->end() ? nullptr : &found->second;
}

bool JinjaValue::operator==(const JinjaValue& other) const {
  if (number() && other.number()) return *number() == *other.number();
  if (is_undefined() || other.is_undefined()) return is_undefined() && other.is_undefined();
  if (is_none() || other.is_none()) return is_none() && other.is_none();
  if (as_text() != nullptr && other.as_text() != nullptr)
    return as_text()->bytes() == other.as_text()->bytes();
  if (as_list() != nullptr && other.as_list() != nullptr) return *as_list() == *other.as_list();
  if (as_dict() != nullptr && other.as_dict() != nullptr) {
    return as_dict()->size() == other.as_dict()->size() &&
           std::ranges::all_of(*as_dict(), [&](const auto& member) {
             const JinjaValue* found = other.find(member.first.str().bytes());
             return found != nullptr && *found == member.second;
           });
  }
  return false;
}

int jinja_order(const JinjaValue& left, const JinjaValue& right) {
  if (left.number() && right.number())
    return *left.number() < *right.number() ? -1 : *left.number() > *right.number() ? 1 : 0;
  if (left.as_text() != nullptr && right.as_text() != nullptr)
    return left.as_text()->bytes().compare(right.as_text()->bytes());
  jinja_fail(cat(left.type_name(), " and ", right.type_name(), " have no order"));
}

bool jinja_contains(const JinjaValue& container, const JinjaValue& item) {
  if (const MarkedText* text = container.as_text()) {
    if (item.as_text() == nullptr)
      jinja_fail(cat("only a text can be searched in a text, not ", item.type_name()));
    return text->bytes().find(item.as_text()->bytes()) != std::string::npos;
  }
  const JinjaList items = container.items();
  return std::ranges::find(items, item) != items.end();
}

std::optional<JinjaValue> jinja_from_json(std::string_view json) {
  try {
    return from_parsed(parse_json(json, "JSON", {.last_key_counts = true}));
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace trireme::text::jinja
