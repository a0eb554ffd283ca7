#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/chat/conversation.hpp"

namespace trireme::text {

/// The text of an empty thought, and the text that opens a thought.
inline constexpr std::string_view kEmptyThink = "<think>\n\n</think>\n\n";
inline constexpr std::string_view kOpenedThought = "<think>\n";

/// The bytes [begin, end) of a rendered chat.
struct TextRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The end token of a turn. `line_end`: the template writes a newline after it.
struct TurnEnd {
  TextRange token;
  bool line_end = false;
};

/// A conversation rendered as one text, with the structure that the template wrote. Masks are
/// computed from the structure, not by a search in the text. All lists are ascending and disjoint.
struct RenderedChat {
  std::string text;
  std::vector<TextRange> contents;   // text from the record: messages, tools, calls
  std::vector<TextRange> answers;    // content and end token of each assistant message
  std::vector<TextRange> untrained;  // answers without targets (ChatMessage::is_target)
  std::vector<TextRange> headers;    // headers of assistant turns, including the newline
  std::vector<TurnEnd> ends;         // ends of all turns
  // A token that is partly outside of an answer is a target too, as in `transformers`.
  bool touching_is_target = false;

  /// Returns true if the next answer begins inside a thought.
  [[nodiscard]] bool opens_thought() const { return text.ends_with(kOpenedThought); }

  // Functions for templates:

  /// Appends text of the template. By default, added tokens are recognized only here.
  RenderedChat& fixed(std::string_view part) {
    text += part;
    return *this;
  }

  /// Appends text of the record.
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

  /// Appends `part` without each occurrence of `cut`.
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

  /// Records the assistant message that was written since `begin`. Called after its turn_end.
  void answer_since(std::size_t begin, const ChatMessage& message) {
    answers.push_back({begin, ends.back().token.end});
    if (!message.is_target) untrained.push_back(answers.back());
  }
};

}  // namespace trireme::text
