#include "text/chat/chat_targets.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace trireme::text {
namespace {

class Targets {
 public:
  Targets(const RenderedChat& chat, const EncodedChat& encoded, std::size_t num_kept)
      : chat_(chat), place_(encoded.place), kept_(std::min(num_kept, encoded.ids.size())) {}

  void add_answers(bool with_line_end) {
    std::size_t turn = 0;
    for (const TextRange& answer : chat_.answers) {
      while (chat_.ends[turn].token.end < answer.end) ++turn;
      const bool line = with_line_end && chat_.ends[turn].line_end;
      if (chat_.touching_is_target) {
        add(touching(answer.begin), first_from(answer.end));
        continue;
      }
      add(first_from(answer.begin), last_until(answer.end + (line ? 1 : 0)));
    }
  }

  /// Adds the answer after the last complete header (V1). The newline of the header is also a
  /// target.
  void add_last_answer() {
    for (auto header = chat_.headers.rbegin(); header != chat_.headers.rend(); ++header) {
      const std::size_t begin = first_from(header->end - 1);
      if (begin > kept_) continue;
      return add(begin, kept_);
    }
  }

  /// Adds, for each header, the tokens up to the next end token and its newline (V2 and later).
  /// Headers inside the range are skipped.
  void add_searched(bool whole_header) {
    std::size_t done = 0;
    for (const TextRange& header : chat_.headers) {
      const std::size_t begin = first_from(header.end);
      // If the newline of the header is merged with the next character, MiniMind's search does not
      // find the header.
      if (header.end < done || (whole_header && place_[begin] != 2 * header.end)) continue;
      const auto end = std::find_if(chat_.ends.begin(), chat_.ends.end(), [&](const TurnEnd& each) {
        return each.token.begin >= header.end;
      });
      if (end == chat_.ends.end()) return add(begin, kept_);
      add(begin, first_from(end->token.end) + (end->line_end ? 1 : 0));
      done = end->token.end;
    }
  }

  /// Removes all tokens that overlap an answer without targets, and the newlines before and after
  /// it.
  void remove_untrained() {
    for (const TextRange& answer : chat_.untrained) {
      const auto header =
          std::find_if(chat_.headers.begin(), chat_.headers.end(),
                       [&](const TextRange& each) { return each.end == answer.begin; });
      const auto end = std::find_if(chat_.ends.begin(), chat_.ends.end(), [&](const TurnEnd& each) {
        return each.token.end == answer.end;
      });
      const bool line_before = header != chat_.headers.end() && chat_.text[header->end - 1] == '\n';
      const bool line_after = end != chat_.ends.end() && end->line_end;
      remove(touching(answer.begin - (line_before ? 1 : 0)),
             first_from(answer.end + (line_after ? 1 : 0)));
    }
  }

  std::vector<TokenSpan> spans;

 private:
  void remove(std::size_t begin, std::size_t end) {
    std::vector<TokenSpan> kept;
    const auto keep = [&](std::size_t from, std::size_t to) {
      if (from < to)
        kept.push_back({static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(to)});
    };
    for (const TokenSpan& span : spans) {
      keep(span.begin, std::min<std::size_t>(span.end, begin));
      keep(std::max<std::size_t>(span.begin, end), span.end);
    }
    spans = std::move(kept);
  }

  /// Returns the token that contains `byte`.
  [[nodiscard]] std::size_t touching(std::size_t byte) const {
    return static_cast<std::size_t>(std::upper_bound(place_.begin(), place_.end(), 2 * byte) -
                                    place_.begin()) -
           1;
  }

  /// Returns the first token that begins at or after `byte`.
  [[nodiscard]] std::size_t first_from(std::size_t byte) const {
    return static_cast<std::size_t>(std::lower_bound(place_.begin(), place_.end(), 2 * byte) -
                                    place_.begin());
  }

  /// Returns the index after the last token that ends at or before `byte`.
  [[nodiscard]] std::size_t last_until(std::size_t byte) const {
    return static_cast<std::size_t>(std::upper_bound(place_.begin(), place_.end(), 2 * byte) -
                                    place_.begin()) -
           1;
  }

  void add(std::size_t begin, std::size_t end) {
    begin = std::max<std::size_t>(begin, 1);
    end = std::min(end, kept_);
    if (begin < end)
      spans.push_back({static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(end)});
  }

  const RenderedChat& chat_;
  const std::vector<std::size_t>& place_;
  std::size_t kept_;
};

}  // namespace

ChatMask parse_chat_mask(std::string_view name) {
  if (name == "answer") return ChatMask::answer;
  if (name == "minimind") return ChatMask::minimind;
  fail(ErrorKind::usage, "--mask {}, must be answer or minimind", name);
}

std::vector<TokenSpan> chat_targets(const RenderedChat& chat, const EncodedChat& encoded,
                                    ChatMask mask, MaskSearch search, std::size_t num_kept) {
  Targets targets(chat, encoded, num_kept);
  if (mask == ChatMask::answer || search == MaskSearch::every_answer) {
    targets.add_answers(mask == ChatMask::minimind);
  } else if (search == MaskSearch::last_answer) {
    targets.add_last_answer();
  } else {
    targets.add_searched(search == MaskSearch::whole_header);
  }
  targets.remove_untrained();
  return std::move(targets.spans);
}

}  // namespace trireme::text
