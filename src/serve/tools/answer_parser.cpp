#include "serve/tools/answer_parser.hpp"

#include <algorithm>
#include <utility>

#include "serve/random_id.hpp"

namespace trireme {
namespace {

constexpr std::string_view kOpenThought = "<think>";
constexpr std::string_view kCloseThought = "</think>";
constexpr std::string_view kSpaces = " \n\r\t";

/// Length of the longest end of `text` that `marker` begins with, less than all of it.
std::size_t begun_length(std::string_view text, std::string_view marker) {
  for (std::size_t length = std::min(text.size(), marker.size() - 1); length > 0; --length) {
    if (text.ends_with(marker.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

AnswerParser::AnswerParser(AnswerForm form)
    : form_(std::move(form)), state_(form_.begins_in_thought ? State::thought : State::begin) {}

AnswerPiece AnswerParser::push(std::string_view text) {
  AnswerPiece piece;
  if (is_complete()) return piece;
  text_ += text;
  while (!is_complete() && advance(piece)) {
  }
  return piece;
}

AnswerPiece AnswerParser::finish() {
  AnswerPiece piece;
  if (is_complete()) return piece;
  if (state_ == State::thought) {
    add_thought(text_, piece);
  } else {
    if (state_ == State::call) text_.insert(0, kOpenCall);
    add_content(text_, piece);
    if (num_calls_ == 0) piece.content += std::exchange(content_space_, {});
  }
  text_.clear();
  return piece;
}

bool AnswerParser::advance(AnswerPiece& piece) {
  switch (state_) {
    case State::begin:
      return begin_answer();
    case State::thought:
      return read_thought(piece);
    case State::after_thought:
      text_.erase(0, text_.find_first_not_of('\n'));
      if (!text_.empty()) state_ = State::content;
      return !text_.empty();
    case State::content:
      return read_content(piece);
    case State::call:
      return read_call(piece);
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

bool AnswerParser::read_thought(AnswerPiece& piece) {
  const std::size_t at = text_.find(kCloseThought);
  if (at == std::string::npos) {
    const std::size_t ready = text_.size() - begun_length(text_, kCloseThought);
    add_thought(std::string_view(text_).substr(0, ready), piece);
    text_.erase(0, ready);
    return false;
  }
  add_thought(std::string_view(text_).substr(0, at), piece);
  thought_lines_.clear();
  text_.erase(0, at + kCloseThought.size());
  state_ = State::after_thought;
  return true;
}

bool AnswerParser::read_content(AnswerPiece& piece) {
  if (form_.tools.empty()) {
    add_content(std::exchange(text_, {}), piece);
    piece.content += std::exchange(content_space_, {});
    return false;
  }
  const std::size_t at = text_.find(kOpenCall);
  if (at == std::string::npos) {
    const std::size_t ready = text_.size() - begun_length(text_, kOpenCall);
    add_content(std::string_view(text_).substr(0, ready), piece);
    text_.erase(0, ready);
    return false;
  }
  add_content(std::string_view(text_).substr(0, at), piece);
  text_.erase(0, at + kOpenCall.size());
  call_.reset();
  state_ = State::call;
  return true;
}

bool AnswerParser::read_call(AnswerPiece& piece) {
  const CallReader::Result result = call_.read(text_);
  if (result == CallReader::Result::more) return false;
  state_ = State::content;
  auto call = result == CallReader::Result::complete ? parse_call(call_.object(text_), form_.tools)
                                                     : std::nullopt;
  if (!call) {  // its opening marker is text, and there may be a call after it
    add_content(kOpenCall, piece);
    return true;
  }
  content_space_.clear();
  ++num_calls_;
  piece.calls.push_back({random_id("call_"), std::move(call->name), std::move(call->arguments)});
  text_.erase(0, call_.size());
  return true;
}

/// Line ends at both ends of a thought are not part of it.
void AnswerParser::add_thought(std::string_view text, AnswerPiece& piece) {
  if (!has_thought_) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  if (text.empty()) return;
  has_thought_ = true;
  const std::size_t end = text.find_last_not_of('\n') + 1;
  if (end > 0) piece.thought.append(std::exchange(thought_lines_, {})).append(text, 0, end);
  thought_lines_ += text.substr(end);
}

/// White space waits for what comes after it: a call, or more content.
void AnswerParser::add_content(std::string_view text, AnswerPiece& piece) {
  const std::size_t end = text.find_last_not_of(kSpaces) + 1;
  if (end > 0) piece.content.append(std::exchange(content_space_, {})).append(text, 0, end);
  content_space_ += text.substr(end);
}

}  // namespace trireme
