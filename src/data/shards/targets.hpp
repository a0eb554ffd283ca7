#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The target tokens of a document, for kinds with a mask (SetContent::is_masked).
namespace trireme::data {

/// Tokens [begin, end), from the start of a document or of one side of a pair.
struct Span {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool operator==(const Span&) const = default;
};

static_assert(sizeof(Span) == 8);  // a row of a u32 [S, 2] dataset

/// The target spans of many documents, in order. Document d has spans[ptr[d]] .. spans[ptr[d+1]],
/// ascending and disjoint. A token in a span is a target if a token of its segment precedes it.
struct SpanTable {
  std::vector<std::uint64_t> ptr{0};
  std::vector<Span> spans;

  void add(std::span<const Span> of_document);
  /// Appends all documents of another table.
  void append(const SpanTable& other);

  [[nodiscard]] std::uint64_t num_documents() const noexcept { return ptr.size() - 1; }

  [[nodiscard]] std::span<const Span> of(std::uint64_t document) const {
    return std::span(spans).subspan(ptr[document], ptr[document + 1] - ptr[document]);
  }

  /// Returns the number of tokens in all spans.
  [[nodiscard]] std::uint64_t num_tokens() const noexcept;
};

/// One text per document, in order. Text d has the bytes [ptr[d], ptr[d+1]).
struct TextTable {
  std::vector<std::uint64_t> ptr{0};
  std::string bytes;

  void add(std::string_view of_document);
  /// Appends all documents of another table.
  void append(const TextTable& other);

  [[nodiscard]] std::uint64_t num_documents() const noexcept { return ptr.size() - 1; }
};

/// Token counts of a preference pair. Each side includes the prompt, which is the longest common
/// prefix of both sides.
struct PairLengths {
  std::uint64_t prompt = 0;
  std::uint64_t chosen = 0;
  std::uint64_t rejected = 0;
};

/// The preference pairs of a shard. The tokens of a pair are its prompt (once), the rest of the
/// chosen side and the rest of the rejected side. Spans count from the start of the prompt on both
/// sides.
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

/// The rule that shortens a preference pair if a side is longer than the sequence length.
enum class PairCutRule {
  end,     // each side loses its end, like in MiniMind
  prompt,  // the prompt loses its beginning, down to a quarter of the length; then like `end`
  drop,    // the pair is dropped
  prompt_to_last_token,  // like `prompt`, down to one token; only in sets older than the option
};

/// Values of `pack --cut-pairs`, by enum value. The last rule has no name, because users cannot
/// choose it.
inline constexpr std::array<std::string_view, 3> kPairCutRules{"end", "prompt", "drop"};

/// Remaining tokens [begin, end of that side) of a preference pair, from the start of the prompt.
struct PairCut {
  std::uint64_t begin = 0;
  std::uint64_t chosen_end = 0;
  std::uint64_t rejected_end = 0;
};

/// Cuts a preference pair to at most `seq_len` tokens per side; nullopt if the rule drops the pair.
/// The prompt loses the same tokens on both sides, but never its last token, because the first
/// token of an answer is a target only if a token precedes it. A cut at one length followed by a
/// cut at a shorter length gives the same tokens as the shorter cut alone.
std::optional<PairCut> cut_pair(const PairLengths& lengths, std::uint64_t seq_len,
                                PairCutRule rule);

/// Returns true if a run can train on a cut preference pair. Each side must keep a target. If a
/// side lost its end, it must keep a target after the prompt (in sets older than the option, any
/// target suffices). `chosen` and `rejected` are the targets of the sides, counted from the start
/// of the prompt.
bool keeps_targets(const PairLengths& lengths, const PairCut& cut, std::span<const Span> chosen,
                   std::span<const Span> rejected, PairCutRule rule);

/// Like keeps_targets, for a document with one answer. The longer side holds the answer and must keep
/// a target after the prompt; the other side is the prompt alone.
bool keeps_answer(const PairLengths& lengths, const PairCut& cut, std::span<const Span> chosen,
                  std::span<const Span> rejected, PairCutRule rule);

/// Returns the position of the last token of the prompt, or 0 if the prompt is empty. This token
/// predicts the first token of the answer, so the targets after the prompt need no earlier
/// position. The position is counted from the start of the prompt.
constexpr std::uint64_t before_answer(std::uint64_t prompt_len) {
  return prompt_len == 0 ? 0 : prompt_len - 1;
}

/// The sequences of one shard at one length, as parts of documents.
///   seq_ptr    [N+1]  segments of sequence n are [seq_ptr[n], seq_ptr[n+1])
///   seg_doc    [S]    document in the shard
///   seg_begin  [S]    first token, from the start of its document
///   seg_len    [S]    number of tokens, 1..seq_len
///   targets    [N]    number of positions of the sequence with a target
struct PackTable {
  std::int64_t seq_len = 0;
  std::vector<std::uint64_t> seq_ptr{0};
  std::vector<std::uint32_t> seg_doc;
  std::vector<std::uint32_t> seg_begin;
  std::vector<std::uint32_t> seg_len;
  std::vector<std::uint32_t> targets;

  [[nodiscard]] std::uint64_t num_sequences() const noexcept { return targets.size(); }
};

/// Returns the number of targets in the part [begin, begin + length) of a document: tokens in a
/// span, except the first token of the part.
std::uint32_t count_targets(std::span<const Span> spans, std::uint32_t begin, std::uint32_t length);

/// Recomputes pack.targets for documents with the targets in `table`.
void count_span_targets(const SpanTable& table, PackTable& pack);

/// Writes the next-token targets of the part [begin, begin + ids.size()) of a document:
///   ids      tokens of the part
///   targets  same size; targets[i] = ids[i+1] if token begin+i+1 is in a span, else unchanged
/// Returns the number of written targets.
std::int64_t fill_targets(std::span<const Span> spans, std::uint32_t begin,
                          std::span<const std::int64_t> ids, std::span<std::int64_t> targets);

}  // namespace trireme::data
