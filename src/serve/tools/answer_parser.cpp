#include "serve/tools/answer_parser.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <span>
#include <utility>

#include "core/error.hpp"
#include "core/files/json.hpp"

namespace trireme::serve {
namespace {

constexpr std::string_view kSpaces = " \n\r\t";

/// Returns the length of the longest proper prefix of `marker` at the end of `text`.
std::size_t begun_length(std::string_view text, std::string_view marker) {
  for (std::size_t length = std::min(text.size(), marker.size() - 1); length > 0; --length) {
    if (text.ends_with(marker.substr(0, length))) return length;
  }
  return 0;
}

constexpr std::string_view kCloseCall = "</tool_call>";

bool is_json_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/// Returns true if JSON can contain the character outside of strings: in structure, numbers, true,
/// false and null.
bool is_outside_text(char c) {
  return is_json_space(c) || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
         std::string_view("{}[]:,\"+-.E").find(c) != std::string_view::npos;
}

/// Parses `text` as a JSON object. Returns null if it is not an object. If a key occurs several
/// times, the last value counts, as in Python.
Json object_in(std::string_view text) {
  try {
    Json parsed = parse_json(text, "call", {.last_key_counts = true});
    return parsed.is_object() ? parsed : Json();
  } catch (const Error&) {
    return {};
  }
}

struct ParsedCall {
  std::string name;
  std::string arguments;
};

/// Parses {"name": one of `tools`, "arguments": an object or a string with one}. Missing arguments
/// become {}. Returns none for any other text.
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

AnswerParser::AnswerParser(AnswerForm form)
    : form_(std::move(form)), state_(form_.begins_in_thought ? State::thought : State::begin) {}

AnswerDelta AnswerParser::push(std::string_view text) {
  AnswerDelta out;
  if (is_complete()) return out;
  text_ += text;
  while (!is_complete() && advance(out)) {
  }
  return out;
}

AnswerDelta AnswerParser::finish() {
  AnswerDelta out;
  if (is_complete()) return out;
  if (state_ == State::thought) {
    add_thought(text_, out);
  } else {
    if (state_ == State::call) text_.insert(0, kOpenCall);
    add_content(text_, out);
    if (num_calls_ == 0) out.content += std::exchange(content_space_, {});
  }
  text_.clear();
  return out;
}

bool AnswerParser::advance(AnswerDelta& out) {
  switch (state_) {
    case State::begin:
      return begin_answer();
    case State::thought:
      return read_thought(out);
    case State::after_thought:
      text_.erase(0, text_.find_first_not_of('\n'));
      if (!text_.empty()) state_ = State::content;
      return !text_.empty();
    case State::content:
      return read_content(out);
    case State::call:
      return read_call(out);
  }
  return false;
}

bool AnswerParser::begin_answer() {
  const std::size_t at = std::min(text_.find_first_not_of(kSpaces), text_.size());
  const std::string_view rest = std::string_view(text_).substr(at);
  if (rest.starts_with(kOpenThought)) {
    text_.erase(0, at + kOpenThought.size());
    state_ = State::thought;
    return true;
  }
  if (kOpenThought.starts_with(rest)) return false;
  state_ = State::content;
  return true;
}

bool AnswerParser::read_thought(AnswerDelta& out) {
  const std::size_t at = text_.find(kCloseThought);
  if (at == std::string::npos) {
    const std::size_t ready = text_.size() - begun_length(text_, kCloseThought);
    add_thought(std::string_view(text_).substr(0, ready), out);
    text_.erase(0, ready);
    return false;
  }
  add_thought(std::string_view(text_).substr(0, at), out);
  thought_lines_.clear();
  text_.erase(0, at + kCloseThought.size());
  state_ = State::after_thought;
  return true;
}

bool AnswerParser::read_content(AnswerDelta& out) {
  if (form_.tools.empty()) {
    add_content(std::exchange(text_, {}), out);
    out.content += std::exchange(content_space_, {});
    return false;
  }
  const std::size_t at = text_.find(kOpenCall);
  if (at == std::string::npos) {
    const std::size_t ready = text_.size() - begun_length(text_, kOpenCall);
    add_content(std::string_view(text_).substr(0, ready), out);
    text_.erase(0, ready);
    return false;
  }
  add_content(std::string_view(text_).substr(0, at), out);
  text_.erase(0, at + kOpenCall.size());
  call_.reset();
  state_ = State::call;
  return true;
}

bool AnswerParser::read_call(AnswerDelta& out) {
  const CallReader::Result result = call_.read(text_);
  if (result == CallReader::Result::more) return false;
  state_ = State::content;
  auto call = result == CallReader::Result::complete ? parse_call(call_.object(text_), form_.tools)
                                                     : std::nullopt;
  if (!call) {  // The opening marker is text. Another call may follow it.
    add_content(kOpenCall, out);
    return true;
  }
  content_space_.clear();
  ++num_calls_;
  out.calls.push_back({random_id("call_"), std::move(call->name), std::move(call->arguments)});
  text_.erase(0, call_.size());
  return true;
}

/// Newlines at both ends of a thought are not part of the thought.
void AnswerParser::add_thought(std::string_view text, AnswerDelta& out) {
  if (!has_thought_) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  if (text.empty()) return;
  has_thought_ = true;
  const std::size_t end = text.find_last_not_of('\n') + 1;
  if (end > 0) out.thought.append(std::exchange(thought_lines_, {})).append(text, 0, end);
  thought_lines_ += text.substr(end);
}

/// Holds white space back until the next part is known: content keeps the white space, a call drops
/// it.
void AnswerParser::add_content(std::string_view text, AnswerDelta& out) {
  const std::size_t end = text.find_last_not_of(kSpaces) + 1;
  if (end > 0) out.content.append(std::exchange(content_space_, {})).append(text, 0, end);
  content_space_ += text.substr(end);
}

std::string random_id(std::string_view prefix) {
  constexpr std::string_view kAlphabet =
      "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  thread_local std::mt19937_64 random{std::random_device{}()};
  std::uniform_int_distribution<std::size_t> index(0, kAlphabet.size() - 1);
  std::string id(prefix);
  for (int i = 0; i < 24; ++i) id += kAlphabet[index(random)];
  return id;
}

}  // namespace trireme::serve
