#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.hpp"

namespace trireme {

/// What stands for "no thoughts".
inline constexpr std::string_view kEmptyThink = "<think>\n\n</think>\n\n";
inline constexpr std::string_view kOpenedThought = "<think>\n";

/// Bytes [begin, end) of a rendered chat.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The end token of a turn, and whether the template puts a line end after it.
struct TurnEnd {
  TextRange token;
  bool line_end = false;
};

/// A conversation as one text, with what its template knows of the structure. Masks are made from
/// this, never from a search in the text. All lists are ascending and disjoint.
struct RenderedChat {
  std::string text;
  std::vector<TextRange> contents;   // what the record gave: message texts, tools, calls
  std::vector<TextRange> answers;    // each assistant message: content and its end token
  std::vector<TextRange> untrained;  // the answers that are no target (ChatMessage::is_target)
  std::vector<TextRange> headers;    // what announces an assistant turn, its line end included
  std::vector<TurnEnd> ends;         // of every turn, whoever speaks

  /// Whether an answer to it begins in a thought.
  [[nodiscard]] bool opens_thought() const { return text.ends_with(kOpenedThought); }

  // What templates write with.

  /// Text of the template itself: the only place where added tokens count by default.
  RenderedChat& fixed(std::string_view part) {
    text += part;
    return *this;
  }

  /// Text of the record.
  RenderedChat& content(std::string_view part) {
    if (part.empty()) return *this;
    if (!contents.empty() && contents.back().end == text.size()) {
      contents.back().end += part.size();
    } else {
      contents.push_back({text.size(), text.size() + part.size()});
    }
    text += part;
    return *this;
  }

  /// The same without each `cut` in it.
  RenderedChat& content_without(std::string_view cut, std::string_view part) {
    for (std::size_t at = 0; (at = part.find(cut)) != std::string_view::npos;) {
      content(part.substr(0, at));
      part.remove_prefix(at + cut.size());
    }
    return content(part);
  }

  RenderedChat& header(std::string_view part) {
    headers.push_back({text.size(), text.size() + part.size()});
    return fixed(part);
  }

  RenderedChat& turn_end(std::string_view token, std::string_view after) {
    ends.push_back({{text.size(), text.size() + token.size()}, after == "\n"});
    return fixed(token).fixed(after);
  }

  /// Since `begin`, an assistant has written `message`; called after its turn_end.
  void answer_since(std::size_t begin, const ChatMessage& message) {
    answers.push_back({begin, ends.back().token.end});
    if (!message.is_target) untrained.push_back(answers.back());
  }
};

}  // namespace trireme
