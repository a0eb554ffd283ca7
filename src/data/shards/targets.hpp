#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "data/shards/pack_table.hpp"

/// Which tokens of a document are targets, where not all are (sets of kind sft and dpo).
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

/// Pairs of a shard. The tokens of a pair are its prompt once, what follows it in the chosen chat,
/// what follows it in the rejected one. Spans count from the prompt's start on both sides.
struct PairTable {
  std::vector<std::uint32_t> prompt_len;  // [D]
  std::vector<std::uint32_t> chosen_len;
  std::vector<std::uint32_t> rejected_len;
  SpanTable chosen;
  SpanTable rejected;

  void append(const PairTable& other);
};

/// What a sequence length leaves of a pair: tokens [begin, end of that side), counted from the start
/// of the prompt.
struct PairCut {
  std::uint64_t begin = 0;
  std::uint64_t chosen_end = 0;
  std::uint64_t rejected_end = 0;
};

/// At most `seq_len` tokens a side, of sides of `chosen` and `rejected` tokens that both begin with
/// `prompt` ones. The prompt gives first, from its beginning, the same on both sides, but its last
/// token stays: with nothing before it the first token of an answer would be no target. Then a side
/// loses its end. Cut at one length, then at a shorter one: the same as at the shorter one alone.
PairCut cut_pair(std::uint64_t prompt, std::uint64_t chosen, std::uint64_t rejected,
                 std::uint64_t seq_len);

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
