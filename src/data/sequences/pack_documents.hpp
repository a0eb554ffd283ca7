#pragma once
#include <cstdint>
#include <span>

#include "data/shards/targets.hpp"

namespace trireme::data {

/// The number of the packing rule of pack_documents. Tables that `pack` wrote into a set do not
/// change. If a run packs sequences when it opens a set, the run can resume only with the rule that
/// it started with. Therefore checkpoints store this number. Increase the number whenever the
/// sequences change. Rule 1 was best fit decreasing.
inline constexpr std::int64_t kPackingRule = 2;

/// Packs whole documents into sequences of `seq_len` tokens. Longer documents are first cut into
/// parts of seq_len and a rest. The result depends only on the arguments: parts of equal length are
/// taken in document order.
///   doc_offset  [D+1] prefix sum of document lengths in tokens
///
/// Fills one sequence after another. A sequence begins with the longest remaining part and
/// continues with parts in document order. Near its end (space for about three parts), the sequence
/// gets two parts that fill it exactly, if there are such parts. If first fit decreasing needs
/// fewer sequences, the function returns the result of first fit decreasing. Time O(D log L),
/// memory about 30 bytes per document. A segment has seg_len - 1 targets, because its last token
/// predicts nothing. Throws Error(usage) if seq_len is not in [2, 2^24], Error(data) for more than
/// 2^32 documents. Sources: Ding et al., "Fewer Truncations Improve Language Modeling", ICML 2024
/// (arXiv 2404.10830), for whole documents; Gupta and Ho, "A new heuristic algorithm for the
/// one-dimensional bin-packing problem", 1999, for filling one bin with least slack.
PackTable pack_documents(std::span<const std::uint64_t> doc_offset, std::int64_t seq_len);

/// Limits of seq_len, for callers that check a length before they open a set. `name` is the option
/// or setting of the length ("--seq-len").
inline constexpr std::int64_t kMinSeqLen = 2;
inline constexpr std::int64_t kMaxSeqLen = std::int64_t{1} << 24;

void check_seq_len(std::int64_t seq_len, const char* name);

}  // namespace trireme::data
