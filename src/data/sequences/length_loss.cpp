#include "data/sequences/length_loss.hpp"

#include <algorithm>

namespace trireme::data {
namespace {

/// Counts the data that conversations [begin, end) of a shard lose, and adds it to `loss`.
void add_conversations(const TokenShard& shard, std::uint64_t begin, std::uint64_t end,
                       std::uint64_t seq_len, LengthTruncation& loss) {
  const std::vector<std::uint64_t> offsets = shard.document_offsets();
  const SpanTable spans = shard.target_spans();
  for (std::uint64_t doc = begin; doc < end; ++doc) {
    const std::uint64_t length = offsets[doc + 1] - offsets[doc];
    const auto count = [&](std::uint64_t kept) {
      return count_targets(spans.of(doc), 0, static_cast<std::uint32_t>(kept));
    };
    const std::uint32_t all = count(length);
    const std::uint32_t left = count(std::min(length, seq_len));
    loss.targets += all;
    loss.lost_targets += all - left;
    if (left == 0) {
      ++loss.dropped;
    } else if (length > seq_len) {
      ++loss.truncated;
    }
  }
}

std::uint32_t targets_of(const PairTable& table, std::uint64_t doc, const PairCut& cut) {
  const auto begin = static_cast<std::uint32_t>(cut.begin);
  const auto count = [&](std::span<const Span> spans, std::uint64_t end) {
    return count_targets(spans, begin, static_cast<std::uint32_t>(end) - begin);
  };
  return count(table.chosen.of(doc), cut.chosen_end) +
         count(table.rejected.of(doc), cut.rejected_end);
}

/// Counts the data that preference pairs [begin, end) of a shard lose, and adds it to `loss`.
void add_pairs(const TokenShard& shard, std::uint64_t begin, std::uint64_t end,
               std::uint64_t seq_len, PairCutRule rule, LengthTruncation& loss) {
  const PairTable table = shard.pairs();
  for (std::uint64_t doc = begin; doc < end; ++doc) {
    const PairLengths lengths = table.lengths(doc);
    const std::uint32_t all = targets_of(table, doc, {0, lengths.chosen, lengths.rejected});
    loss.targets += all;
    const auto cut = cut_pair(lengths, seq_len, rule);
    if (!cut || !shard.contents().keeps(lengths, *cut, table.chosen.of(doc), table.rejected.of(doc),
                                        rule)) {
      ++loss.dropped;
      loss.lost_targets += all;
      continue;
    }
    loss.lost_targets += all - targets_of(table, doc, *cut);
    const bool answer = cut->chosen_end < lengths.chosen || cut->rejected_end < lengths.rejected;
    loss.cut_prompts += cut->begin != 0 ? 1 : 0;
    loss.cut_answers += answer ? 1 : 0;
    loss.truncated += cut->begin != 0 || answer ? 1 : 0;
  }
}

}  // namespace

std::optional<LengthTruncation> length_loss(const TokenSet& set, std::int64_t seq_len,
                                            const DocumentRange& range) {
  const SetContent& content = set.contents();
  if (!content.is_masked() || content.has_prompts() || seq_len >= set.seq_len()) return std::nullopt;
  const auto length = static_cast<std::uint64_t>(seq_len);
  const PairCutRule rule = content.has_pairs() ? set.manifest().pair_cut_rule() : PairCutRule::end;
  LengthTruncation loss{.documents = range.end - range.begin};
  if (range == DocumentRange{0, set.num_documents()}) {
    loss.documents += set.manifest().counts.dropped;
    loss.dropped += set.manifest().counts.dropped_long;
  }
  std::uint64_t first = 0;  // first document of the shard, counted over the set
  for (std::size_t i = 0; i < set.num_shards(); ++i) {
    const std::uint64_t count = set.manifest().shards[i].counts.documents;
    const std::uint64_t begin = std::clamp(range.begin, first, first + count) - first;
    const std::uint64_t end = std::clamp(range.end, first, first + count) - first;
    first += count;
    if (begin == end) continue;
    if (content.has_pairs()) {
      add_pairs(set.shard(i), begin, end, length, rule, loss);
    } else {
      add_conversations(set.shard(i), begin, end, length, loss);
    }
  }
  return loss;
}

}  // namespace trireme::data
