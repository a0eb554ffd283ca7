#include <algorithm>
#include <array>
#include <limits>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "data/order/samples.hpp"

/// Makes batches of samples: rows of sequences, or one row of preference pairs.
namespace trireme::data {
namespace {

/// Fills row `row` with padding from position `begin` on.
void pad_row(std::int64_t begin, std::int64_t row, std::int64_t pad_id, Batch& batch) {
  batch.row_lengths.push_back(begin);
  if (begin == batch.T) return;
  for (std::int64_t i = begin; i < batch.T; ++i) {
    const auto at = static_cast<std::size_t>(row * batch.T + i);
    batch.tokens[at] = pad_id;
    batch.positions[at] = i - begin;
  }
  batch.segment_bounds.push_back(static_cast<std::int32_t>((row + 1) * batch.T));
}

/// Resizes the batch to B * T tokens. New tokens have no target.
void resize(Batch& batch, std::int64_t B, std::int64_t T) {
  batch.B = B;
  batch.T = T;
  if (B * T > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorKind::usage, "a batch of {} x {} tokens, must be under 2^31: lower train.micro_batch",
         B, T);
  }
  const auto total = static_cast<std::size_t>(B * T);
  batch.tokens.resize(total);
  batch.targets.resize(total, kIgnoreTarget);
  batch.positions.resize(total);
}

/// Appends a side of a pair that has lost `cut` tokens at its beginning. Its first `no_target`
/// tokens are not targets.
void add_side(const Pair::Side& side, std::uint32_t cut, std::uint32_t no_target, Batch& batch) {
  const std::int64_t begin = batch.T;
  resize(batch, 1, begin + std::ssize(side.ids));
  std::copy(side.ids.begin(), side.ids.end(), batch.tokens.begin() + begin);
  for (std::int64_t i = begin; i < batch.T; ++i)
    batch.positions[static_cast<std::size_t>(i)] = i - begin;
  const std::size_t from = std::min<std::size_t>(before_answer(no_target), side.ids.size());
  batch.num_targets += fill_targets(
      side.targets, cut + static_cast<std::uint32_t>(from), std::span(side.ids).subspan(from),
      std::span(batch.targets).subspan(static_cast<std::size_t>(begin) + from));
  const std::int32_t sequence = batch.sequence_of.empty() ? 0 : batch.sequence_of.back() + 1;
  batch.sequence_of.resize(batch.tokens.size(), sequence);
  batch.segment_bounds.push_back(static_cast<std::int32_t>(batch.T));
}

}  // namespace

void SampleSet::read_checked(const TokenShard& shard, std::uint64_t begin,
                             std::span<std::int64_t> ids) const {
  shard.read_tokens(begin, ids);
  const auto outside = std::find_if(ids.begin(), ids.end(), [&](std::int64_t id) {
    return id >= static_cast<std::int64_t>(set_->vocab_size());
  });
  if (outside != ids.end()) {
    fail(ErrorKind::data, "{}: token {} at {}, but the vocabulary has {} tokens",
         shard.path().string(), *outside, begin + static_cast<std::uint64_t>(outside - ids.begin()),
         set_->vocab_size());
  }
}

void SampleSet::fill_segment(const Piece& piece, std::int64_t at, Batch& batch) const {
  const Segment& segment = piece.segment;
  const TokenShard& shard = set_->shard(piece.shard);
  const auto length = static_cast<std::int64_t>(segment.length);
  const std::span<std::int64_t> ids =
      std::span(batch.tokens).subspan(static_cast<std::size_t>(at), segment.length);
  read_checked(shard, shard.document_begin(segment.doc) + segment.begin, ids);
  for (std::int64_t i = 0; i < length; ++i) {
    batch.positions[static_cast<std::size_t>(at + i)] = i;
  }
  const Span all{0, segment.begin + segment.length};
  const std::vector<Span> spans =
      shard.has_spans() ? shard.target_spans(segment.doc) : std::vector<Span>{all};
  batch.num_targets +=
      fill_targets(spans, segment.begin, ids,
                   std::span(batch.targets).subspan(static_cast<std::size_t>(at), ids.size()));
  batch.segment_bounds.push_back(static_cast<std::int32_t>(at + length));
}

void SampleSet::fill_row(std::uint64_t position, std::int64_t row, Batch& batch) const {
  if (joined_ != nullptr) return fill_concat_row(position, row, batch);
  std::int64_t used = 0;
  for (const Piece& piece : sequences_->pieces(position)) {
    const std::int64_t length = piece.segment.length;
    if (length == 0 || length > config_.seq_len - used) {
      fail(ErrorKind::data, "{}: sequence {} of the set is longer than {} tokens",
           set_->shard(piece.shard).path().string(), position, config_.seq_len);
    }
    fill_segment(piece, row * config_.seq_len + used, batch);
    used += length;
  }
  pad_row(used, row, pad_id_, batch);
}

void SampleSet::fill_concat_row(std::uint64_t position, std::int64_t row, Batch& batch) const {
  std::vector<std::int64_t> ids;  // includes the token after the row, if there is one
  for (const TokenRun& run : joined_->runs(position)) {
    ids.resize(ids.size() + run.length);
    read_checked(set_->shard(run.shard), run.begin, std::span(ids).last(run.length));
  }
  const std::int64_t length = std::min(static_cast<std::int64_t>(ids.size()), config_.seq_len);
  for (std::int64_t i = 0; i < length; ++i) {
    const auto here = static_cast<std::size_t>(row * config_.seq_len + i);
    const auto next = static_cast<std::size_t>(i) + 1;
    batch.tokens[here] = ids[next - 1];
    batch.positions[here] = i;
    if (next < ids.size()) batch.targets[here] = ids[next];
  }
  batch.num_targets += static_cast<std::int64_t>(ids.size()) - 1;
  batch.segment_bounds.push_back(static_cast<std::int32_t>(row * config_.seq_len + length));
  pad_row(length, row, pad_id_, batch);
}

void SampleSet::add_pair(std::uint64_t position, Batch& batch) const {
  const CutPair pair = pairs_->pair(position);
  const std::uint32_t no_target = config_.answers_only ? pair.prompt_len : 0;
  const auto begin = static_cast<std::size_t>(batch.T);
  add_side(pair.chosen, pair.begin, no_target, batch);
  add_side(pair.rejected, pair.begin, no_target, batch);
  const std::array<std::uint64_t, 4> parts{
      key_of_set_, pair.chosen.ids.size(),
      xxh3_64(std::as_bytes(std::span(batch.tokens).subspan(begin))),
      xxh3_64(std::as_bytes(std::span(batch.targets).subspan(begin)))};
  batch.pair_keys.push_back(xxh3_64(std::as_bytes(std::span(parts))));
  ++batch.num_pairs;
  batch.pair_records.push_back(config_.first_record +
                               static_cast<std::int64_t>(pairs_->document(position)));
}

void SampleSet::finish_pairs(Batch& batch) const {
  const std::int64_t step = config_.row_multiple;
  const std::int64_t used = batch.T;
  resize(batch, 1, std::max((used + step - 1) / step * step, step));
  batch.sequence_of.resize(batch.tokens.size(), -1);
  pad_row(used, 0, pad_id_, batch);
}

void SampleSet::weigh_targets(Batch& batch) const {
  if (config_.token_weights.empty()) return;
  batch.target_weights.assign(batch.targets.size(), 1);
  for (std::size_t i = 0; i < batch.targets.size(); ++i) {
    const auto weight = config_.token_weights.find(batch.targets[i]);
    if (weight != config_.token_weights.end()) batch.target_weights[i] = weight->second;
  }
}

Batch gather_batch(std::span<const DrawnSample> drawn) {
  TRIREME_ASSERT(!drawn.empty());
  const SampleSet& first = *drawn.front().samples;
  Batch batch;
  batch.segment_bounds.push_back(0);
  if (!first.samples_are_pairs()) resize(batch, std::ssize(drawn), first.seq_len());
  for (std::int64_t row = 0; row < std::ssize(drawn); ++row) {
    const auto& [index, samples, position] = drawn[static_cast<std::size_t>(row)];
    TRIREME_ASSERT(samples->seq_len() == first.seq_len() &&
                   samples->samples_are_pairs() == first.samples_are_pairs());
    if (!first.samples_are_pairs() || index != kNoSample) batch.sample_indices.push_back(index);
    if (index == kNoSample) {
      if (!first.samples_are_pairs()) pad_row(0, row, samples->pad_id_, batch);
    } else if (first.samples_are_pairs()) {
      samples->add_pair(position, batch);
    } else {
      samples->fill_row(position, row, batch);
    }
  }
  if (first.samples_are_pairs()) first.finish_pairs(batch);
  first.weigh_targets(batch);
  return batch;
}

Batch SampleSet::make_batch(std::span<const std::int64_t> indices, const SampleOrder& order) const {
  TRIREME_ASSERT(order.num_samples() == size());
  std::vector<DrawnSample> drawn;
  for (const std::int64_t index : indices) {
    const bool none = index == kNoSample;
    drawn.push_back(
        {index, this, none ? 0 : order.locate(static_cast<std::uint64_t>(index)).position});
  }
  return gather_batch(drawn);
}

}  // namespace trireme::data
