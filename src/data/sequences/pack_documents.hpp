#pragma once
#include <cstdint>
#include <span>

#include "data/shards/pack_table.hpp"

namespace trireme {

/// The rule of pack_documents. A set keeps its tables, but where sequences are packed when a set is
/// opened a run can go on only by the rule that it began with: checkpoints hold this number.
/// Raise it whenever the sequences change. 1 was best fit decreasing.
inline constexpr std::int64_t kPackingRule = 2;

/// Fills sequences of `seq_len` tokens with whole documents; longer ones are first cut into pieces
/// of seq_len and a rest. A pure function of its arguments: of pieces of one length the first
/// document's comes first, then by place in it.
///   doc_offset  [D+1] prefix sum of document lengths in tokens
/// One sequence after another: the longest piece left, then pieces in document order, and when room
/// for about three is left, two that fill it exactly. Where first fit decreasing needs fewer
/// sequences its result is taken, so there are never more than that. Time O(D log L), memory about
/// 30 bytes a document. Targets are counted as seg_len - 1 for each segment: the last token of a
/// segment predicts nothing. Throws Error(usage) if seq_len is not in [2, 2^24] and Error(data) for
/// more than 2^32 documents. Sources: Ding et al., "Fewer Truncations Improve Language Modeling",
/// ICML 2024 (arXiv 2404.10830), for whole documents; Gupta and Ho, "A new heuristic algorithm for
/// the one-dimensional bin-packing problem", 1999, for filling one bin with least slack.
PackTable pack_documents(std::span<const std::uint64_t> doc_offset, std::int64_t seq_len);

/// The bounds above, for callers that want to refuse a length early.
/// `name` is how the user gave it ("--seq-len").
inline constexpr std::int64_t kLeastSeqLen = 2;
inline constexpr std::int64_t kMostSeqLen = std::int64_t{1} << 24;

void check_seq_len(std::int64_t seq_len, const char* name);

}  // namespace trireme
