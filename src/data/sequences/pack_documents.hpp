#pragma once
#include <cstdint>
#include <span>

#include "data/shards/targets.hpp"

namespace trireme::data {

/// The number of the rule of pack_documents. A set keeps its tables. If sequences are packed when a
/// set is opened, a run can continue only with the rule it began with, so checkpoints store this
/// number. Increase it whenever the sequences change. Rule 1 was best fit decreasing.
inline constexpr std::int64_t kPackingRule = 2;

/// Packs whole documents into sequences of `seq_len` tokens. Longer documents are first cut into
/// parts of seq_len and a rest. A pure function of its arguments: among parts of equal length, the
/// part of the first document comes first, then the first part in the document.
///   doc_offset  [D+1] prefix sum of document lengths in tokens
///
/// Fills one sequence after another: the longest remaining part, then parts in document order, and
/// near the end (space for about three parts) two parts that fill it exactly. If first fit
/// decreasing needs fewer sequences, its result is used, so the result never needs more. Time O(D
/// log L), memory about 30 bytes per document. A segment has seg_len - 1 targets, because its last
/// token predicts nothing. Throws Error(usage) if seq_len is not in [2, 2^24], Error(data) for more
/// than 2^32 documents. Sources: Ding et al., "Fewer Truncations Improve Language Modeling", ICML
/// 2024 (arXiv 2404.10830), for whole documents; Gupta and Ho, "A new heuristic algorithm for the
/// one-dimensional bin-packing problem", 1999, for filling one bin with least slack.
PackTable pack_documents(std::span<const std::uint64_t> doc_offset, std::int64_t seq_len);

/// Bounds of seq_len, for callers that refuse a length early. `name` is the option or setting of
/// the length ("--seq-len").
inline constexpr std::int64_t kLeastSeqLen = 2;
inline constexpr std::int64_t kMostSeqLen = std::int64_t{1} << 24;

void check_seq_len(std::int64_t seq_len, const char* name);

}  // namespace trireme::data
