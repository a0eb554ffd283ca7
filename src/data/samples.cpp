#include "data/samples.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"

namespace trireme {
namespace {

/// Closes the row with one segment of padding, if it has room left.
void pad_row(std::int64_t begin, std::int64_t row_end, std::int64_t pad_id, Batch& batch) {
  for (std::int64_t i = begin; i < row_end; ++i) {
    const auto at = static_cast<std::size_t>(i);
    batch.tokens[at] = pad_id;
    batch.positions[at] = i - begin;
  }
  if (begin < row_end) batch.segment_bounds.push_back(static_cast<std::int32_t>(row_end));
}

}  // namespace

SampleSet::SampleSet(const TokenSet& set, std::int64_t seq_len)
    : set_(set), seq_len_(seq_len), pad_id_(set.pad_id().value_or(0)) {
  check_seq_len(seq_len, "train.seq_len");
  if (set.kind() == schema::kKindDpo) {
    fail(ErrorKind::usage,
         set.folder().string(),
         " is of kind dpo: it holds pairs, which are no sequences");
  }
  const auto& shards = set.manifest().shards;
  prepared_ = std::all_of(shards.begin(), shards.end(), [&](const ShardEntry& shard) {
    return shard.packs.contains(seq_len);
  });
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (prepared_) {
      first_.push_back(first_.back() + shards[i].packs.at(seq_len));
    } else {
      tables_.push_back(pack_best_fit(set.shard(i).document_offsets(), seq_len));
      if (set.shard(i).has_spans())
        count_span_targets(set.shard(i).target_spans(), 0, tables_.back());
      first_.push_back(first_.back() + tables_.back().num_sequences());
    }
  }
  if (size() == 0)
    fail(ErrorKind::usage, set.folder().string(), " holds no tokens: nothing to train on");
}

SampleSet::Place SampleSet::locate(std::uint64_t position) const {
  TRIREME_ASSERT(position < size());
  const auto after = std::upper_bound(first_.begin(), first_.end(), position);
  const auto shard = static_cast<std::size_t>(after - first_.begin()) - 1;
  return {shard, position - first_[shard]};
}

std::int64_t SampleSet::num_targets(std::uint64_t position) const {
  const Place place = locate(position);
  return prepared_ ? set_.shard(place.shard).num_targets(seq_len_, place.sequence)
                   : tables_[place.shard].targets[place.sequence];
}

std::int64_t SampleSet::count_targets(std::span<const std::int64_t> indices,
                                      const SampleOrder& order) const {
  std::int64_t sum = 0;
  for (const std::int64_t index : indices) {
    if (index != kNoSample)
      sum += num_targets(order.place(static_cast<std::uint64_t>(index)).position);
  }
  return sum;
}

std::vector<Segment> SampleSet::segments(const Place& place) const {
  if (prepared_) return set_.shard(place.shard).segments(seq_len_, place.sequence);
  const PackTable& table = tables_[place.shard];
  std::vector<Segment> result;
  for (std::uint64_t i = table.seq_ptr[place.sequence]; i < table.seq_ptr[place.sequence + 1];
       ++i) {
    result.push_back({table.seg_doc[i], table.seg_begin[i], table.seg_len[i]});
  }
  return result;
}

void SampleSet::fill_row(std::uint64_t position, std::int64_t row, Batch& batch) const {
  const Place place = locate(position);
  const TokenShard& shard = set_.shard(place.shard);
  const std::int64_t row_end = (row + 1) * seq_len_;
  std::int64_t at = row * seq_len_;
  for (const Segment& segment : segments(place)) {
    const std::int64_t length = segment.length;
    if (length == 0 || length > row_end - at) {
      fail(ErrorKind::data,
           shard.path().string(),
           ": sequence ",
           place.sequence,
           " of length ",
           seq_len_,
           " is overfull");
    }
    const std::span<std::int64_t> ids =
        std::span(batch.tokens).subspan(static_cast<std::size_t>(at), segment.length);
    shard.read_tokens(shard.document_begin(segment.doc) + segment.begin, ids);
    for (std::int64_t i = 0; i < length; ++i) {
      const auto here = static_cast<std::size_t>(at + i);
      if (batch.tokens[here] >= static_cast<std::int64_t>(set_.vocab_size())) {
        fail(ErrorKind::data,
             shard.path().string(),
             ": token ",
             batch.tokens[here],
             " in document ",
             segment.doc,
             ", the vocabulary has ",
             set_.vocab_size());
      }
      batch.positions[here] = i;
    }
    const Span all{0, segment.begin + segment.length};
    const std::vector<Span> spans =
        shard.has_spans() ? shard.target_spans(segment.doc) : std::vector<Span>{all};
    batch.num_targets +=
        fill_targets(spans,
                     segment.begin,
                     ids,
                     std::span(batch.targets).subspan(static_cast<std::size_t>(at), ids.size()));
    at += length;
    batch.segment_bounds.push_back(static_cast<std::int32_t>(at));
  }
  pad_row(at, row_end, pad_id_, batch);
}

Batch SampleSet::make_batch(std::span<const std::int64_t> indices, const SampleOrder& order) const {
  TRIREME_ASSERT(order.num_samples() == size());
  Batch batch;
  batch.B = static_cast<std::int64_t>(indices.size());
  batch.T = seq_len_;
  const std::int64_t total = batch.B * batch.T;
  if (total > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorKind::usage,
         "a batch of ",
         batch.B,
         " x ",
         batch.T,
         " tokens, must be under 2^31: lower train.micro_batch");
  }
  batch.tokens.resize(static_cast<std::size_t>(total));
  batch.targets.assign(static_cast<std::size_t>(total), kIgnoreTarget);
  batch.positions.resize(static_cast<std::size_t>(total));
  batch.segment_bounds.push_back(0);
  batch.sample_indices.assign(indices.begin(), indices.end());
  for (std::int64_t row = 0; row < batch.B; ++row) {
    const std::int64_t index = indices[static_cast<std::size_t>(row)];
    if (index == kNoSample) {
      pad_row(row * seq_len_, (row + 1) * seq_len_, pad_id_, batch);
    } else {
      fill_row(order.place(static_cast<std::uint64_t>(index)).position, row, batch);
    }
  }
  return batch;
}

}  // namespace trireme
