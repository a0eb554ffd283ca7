#include "serve/tools/call_reader.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"

namespace trireme {
namespace {

constexpr std::string_view kCloseCall = "</tool_call>";

bool is_json_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/// What stands outside of texts: structure, numbers, true, false, null.
bool is_outside_text(char c) {
  return is_json_space(c) || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         std::string_view("{}[]:,\"+-.E").find(c) != std::string_view::npos;
}

/// The object that `text` holds, of equal keys the last, as Python's reader takes them; null if it holds
/// none.
Json object_in(std::string_view text) {
  try {
    Json parsed = parse_json(text, "call", {.last_key_counts = true});
    return parsed.is_object() ? parsed : Json();
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

CallReader::Result CallReader::read(std::string_view text) {
  Result result = Result::more;
  while (result == Result::more && at_ < text.size()) result = step(text[at_++]);
  return result;
}

CallReader::Result CallReader::step(char c) {
  switch (where_) {
    case Where::before:
      if (is_json_space(c)) return Result::more;
      begin_ = at_ - 1;
      where_ = Where::object;
      depth_ = 1;
      return c == '{' ? Result::more : Result::malformed;
    case Where::object:
      if (!is_outside_text(c)) return Result::malformed;
      if (c == '"') where_ = Where::text;
      if (c == '{' || c == '[') ++depth_;
      if ((c == '}' || c == ']') && --depth_ == 0) {
        where_ = Where::after;
        end_ = at_;
      }
      return Result::more;
    case Where::text:
      if (c == '\\') where_ = Where::escape;
      if (c == '"') where_ = Where::object;
      return Result::more;
    case Where::escape:
      where_ = Where::text;
      return Result::more;
    case Where::after:
      if (marker_ == 0 && is_json_space(c)) return Result::more;
      if (c != kCloseCall[marker_++]) return Result::malformed;
      return marker_ == kCloseCall.size() ? Result::complete : Result::more;
  }
  return Result::malformed;
}

std::optional<ParsedCall> parse_call(std::string_view json, std::span<const std::string> tools) {
  const Json call = object_in(json);
  const auto name = call.find("name");
  if (!call.is_object() || name == call.end() || !name->is_string()) return std::nullopt;
  ParsedCall parsed{name->get<std::string>(), "{}"};
  if (std::find(tools.begin(), tools.end(), parsed.name) == tools.end()) return std::nullopt;
  const auto arguments = call.find("arguments");
  if (arguments == call.end() || arguments->is_null()) return parsed;
  const Json object =
      arguments->is_string() ? object_in(arguments->get_ref<const std::string&>()) : *arguments;
  if (!object.is_object()) return std::nullopt;
  parsed.arguments = object.dump();
  return parsed;
}

}  // namespace trireme
