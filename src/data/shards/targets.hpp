#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "data/shards/pack_table.hpp"

/// Which tokens of a document are targets, where not all are (SetKind::is_masked).
namespace trireme {

/// Tokens [begin, end), from the start of a document or of one side of a pair.
struct Span {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool operator==(const Span&) const = default;
};

static_assert(sizeof(Span) == 8);  // a row of a u32 [S, 2] dataset

/// The spans of many documents, in order: those of document d are spans[ptr[d]] .. spans[ptr[d+1]],
/// ascending and disjoint. A token in them is a target, if a token of its segment is before it.
struct SpanTable {
  std::vector<std::uint64_t> ptr{0};
  std::vector<Span> spans;

  void add(std::span<const Span> of_document);
  /// Adds all documents of another table.
  void append(const SpanTable& other);

  [[nodiscard]] std::uint64_t num_documents() const noexcept { return ptr.size() - 1; }

  [[nodiscard]] std::span<const Span> of(std::uint64_t document) const {
    return std::span(spans).subspan(ptr[document], ptr[document + 1] - ptr[document]);
  }

  /// Tokens in all spans.
  [[nodiscard]] std::uint64_t num_tokens() const noexcept;
};

/// Numbers of tokens of a preference pair. Each side includes the prompt, which is the longest run
/// of tokens that both sides begin with.
struct PairLengths {
  std::uint64_t prompt = 0;
  std::uint64_t chosen = 0;
  std::uint64_t rejected = 0;
};

/// Pairs of a shard. The tokens of a pair are its prompt once, what follows it in the chosen chat,
/// what follows it in the rejected one. Spans count from the prompt's start on both sides.
struct PairTable {
  std::vector<std::uint32_t> prompt_len;  // [D]
  std::vector<std::uint32_t> chosen_len;
  std::vector<std::uint32_t> rejected_len;
  SpanTable chosen;
  SpanTable rejected;

  void append(const PairTable& other);

  [[nodiscard]] PairLengths lengths(std::uint64_t document) const {
    const std::uint64_t prompt = prompt_len[document];
    return {prompt, prompt + chosen_len[document], prompt + rejected_len[document]};
  }
};

/// The part of a preference pair that is cut if a side is longer than the sequence length.
enum class PairCutRule {
  end,     // each side loses its end, as in MiniMind
  prompt,  // the prompt loses its beginning, down to a quarter of the length; then as `end`
  drop,    // the pair is left out
  prompt_to_last_token,  // as `prompt`, down to one token; only sets made before the option have it
};

/// Values of `pack --cut-pairs`, by enum value. The last rule has no name: it cannot be chosen.
inline constexpr std::array<std::string_view, 3> kPairCutRules{"end", "prompt", "drop"};

/// Tokens [begin, end of that side) of a preference pair, counted from the start of the prompt.
struct PairCut {
  std::uint64_t begin = 0;
  std::uint64_t chosen_end = 0;
  std::uint64_t rejected_end = 0;
};

/// Cuts a preference pair to at most `seq_len` tokens a side; none if the rule leaves the pair out.
/// The prompt loses the same tokens on both sides, and never its last one: the first token of an
/// answer is a target only if a token is before it. A cut at one length and then at a shorter one
/// gives the same tokens as the cut at the shorter length alone.
std::optional<PairCut> cut_pair(const PairLengths& lengths, std::uint64_t seq_len,
                                PairCutRule rule);

/// Returns true if a cut preference pair can be trained on: each side keeps a target, and a side
/// that lost its end keeps one behind the prompt (for sets of before the option: any target).
/// `chosen` and `rejected` are the targets of the sides, counted from the start of the prompt.
bool keeps_targets(const PairLengths& lengths, const PairCut& cut, std::span<const Span> chosen,
                   std::span<const Span> rejected, PairCutRule rule);

/// First token of a side that matters for the targets behind the prompt: the prompt's last token,
/// after which the first token of the answer is a target. Counted like `prompt_len`.
constexpr std::uint64_t before_answer(std::uint64_t prompt_len) {
  return prompt_len == 0 ? 0 : prompt_len - 1;
}

/// Tokens of a document's piece [begin, begin + length) that are targets:
/// in a span, and not the piece's first.
std::uint32_t count_targets(std::span<const Span> spans, std::uint32_t begin, std::uint32_t length);

/// Fills pack.targets anew for documents whose targets are `table`'s.
void count_span_targets(const SpanTable& table, PackTable& pack);

/// Writes the next-token targets of a piece [begin, begin + ids.size()) of a document:
///   ids      its tokens
///   targets  as many; targets[i] = ids[i+1] where token begin+i+1 is in a span, else left as it is
/// Returns how many were written.
std::int64_t fill_targets(std::span<const Span> spans, std::uint32_t begin,
                          std::span<const std::int64_t> ids, std::span<std::int64_t> targets);

}  // namespace trireme
