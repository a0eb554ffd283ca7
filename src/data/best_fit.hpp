#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace trireme {

/// Sequences of one shard at one length: which pieces of which documents each holds.
///   seq_ptr    [N+1]  segments of sequence n are [seq_ptr[n], seq_ptr[n+1])
///   seg_doc    [S]    document in the shard
///   seg_begin  [S]    first token, from the start of its document
///   seg_len    [S]    tokens, 1..seq_len
///   targets    [N]    positions of the sequence that have a target
struct PackTable {
  std::int64_t seq_len = 0;
  std::vector<std::uint64_t> seq_ptr{0};
  std::vector<std::uint32_t> seg_doc;
  std::vector<std::uint32_t> seg_begin;
  std::vector<std::uint32_t> seg_len;
  std::vector<std::uint32_t> targets;

  [[nodiscard]] std::uint64_t num_sequences() const noexcept { return targets.size(); }
};

/// Fills sequences of `seq_len` tokens with whole documents, best fit decreasing; longer documents
/// are first cut into pieces of seq_len and a rest. A pure function of its arguments: ties go by
/// document, then by place in it.
///   doc_offset  [D+1] prefix sum of document lengths in tokens
/// Targets are counted as seg_len - 1 for each segment: the last token of a segment predicts
/// nothing. O(D log L) time. Throws Error(usage) if seq_len is not in [2, 2^24] and Error(data) for
/// more than 2^32 documents. Source: Ding et al., "Fewer Truncations Improve Language Modeling",
/// ICML 2024 (arXiv 2404.10830).
PackTable pack_best_fit(std::span<const std::uint64_t> doc_offset, std::int64_t seq_len);

/// The bounds above, for callers that want to refuse a length early. `name` is how the user gave it
/// ("--seq-len").
void check_seq_len(std::int64_t seq_len, const char* name);

}  // namespace trireme
