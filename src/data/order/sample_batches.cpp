#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <utility>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "data/order/samples.hpp"

/// Makes batches of samples: rows of sequences, or one row of preference pairs or answers.
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

/// Appends sequence `sequence`: a side of a pair that has lost `cut` tokens at its beginning. Its
/// first `no_target` tokens are not targets.
void add_side(const Pair::Side& side, std::uint32_t cut, std::uint32_t no_target,
              std::int64_t sequence, Batch& batch) {
  const std::int64_t begin = batch.T;
  resize(batch, 1, begin + std::ssize(side.ids));
  std::copy(side.ids.begin(), side.ids.end(), batch.tokens.begin() + begin);
  for (std::int64_t i = begin; i < batch.T; ++i)
    batch.positions[static_cast<std::size_t>(i)] = i - begin;
  const std::size_t from = std::min<std::size_t>(before_answer(no_target), side.ids.size());
  batch.num_targets += fill_targets(
      side.targets, cut + static_cast<std::uint32_t>(from), std::span(side.ids).subspan(from),
      std::span(batch.targets).subspan(static_cast<std::size_t>(begin) + from));
  batch.sequence_of.resize(batch.tokens.size(), static_cast<std::int32_t>(sequence));
  batch.segment_bounds.push_back(static_cast<std::int32_t>(batch.T));
}

/// Returns the prompt of `own` with the answer of `other`, cut to seq_len tokens.
Pair::Side with_answer_of(const CutPair& own, const CutPair& other, std::int64_t seq_len) {
  const std::vector<std::int64_t>& from = other.answer().ids;
  Pair::Side side;
  side.ids.assign(own.answer().ids.begin(), own.answer().ids.begin() + own.prompt_len);
  side.ids.insert(side.ids.end(), from.begin() + other.prompt_len, from.end());
  if (std::ssize(side.ids) > seq_len) side.ids.resize(static_cast<std::size_t>(seq_len));
  const std::uint32_t begin = other.begin + other.prompt_len;  // first token of the other answer
  for (const Span& span : other.answer().targets)
    if (span.end > begin)
      side.targets.push_back({std::max(span.begin, begin) - begin + own.prompt_len,
                              span.end - begin + own.prompt_len});
  return side;
}

/// Returns the hashes of the tokens and the targets of a batch from token `begin` on.
std::array<std::uint64_t, 2> content_hashes(const Batch& batch, std::size_t begin) {
  return {xxh3_64(std::as_bytes(std::span(batch.tokens).subspan(begin))),
          xxh3_64(std::as_bytes(std::span(batch.targets).subspan(begin)))};
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
  add_side(pair.chosen, pair.begin, no_target, 2 * batch.num_pairs, batch);
  add_side(pair.rejected, pair.begin, no_target, 2 * batch.num_pairs + 1, batch);
  const auto [tokens, targets] = content_hashes(batch, begin);
  const std::array<std::uint64_t, 4> parts{key_of_set_, pair.chosen.ids.size(), tokens, targets};
  batch.pair_keys.push_back(xxh3_64(std::as_bytes(std::span(parts))));
  ++batch.num_pairs;
  batch.pair_records.push_back(config_.first_record +
                               static_cast<std::int64_t>(pairs_->document(position)));
}

bool SampleSet::samples_are_answers() const {
  return set_->contents().sample == SampleForm::answer;
}

void SampleSet::add_answer(std::uint64_t position, Batch& batch, Batch& mismatched) const {
  const CutPair own = pairs_->pair(position);
  const std::int64_t side = own.is_desirable() ? 0 : 1;
  const auto begin = static_cast<std::size_t>(batch.T);
  const auto other_begin = static_cast<std::size_t>(mismatched.T);
  add_side(own.answer(), own.begin, own.prompt_len, 2 * batch.num_pairs + side, batch);
  add_side(with_answer_of(own, pairs_->with_other_prompt(position), config_.seq_len), 0,
           own.prompt_len, 2 * batch.num_pairs + 1 - side, mismatched);
  const auto [tokens, targets] = content_hashes(batch, begin);
  const auto [other_tokens, other_targets] = content_hashes(mismatched, other_begin);
  const std::array<std::uint64_t, 6> parts{key_of_set_, own.chosen.ids.size(), tokens,
                                           targets,     other_tokens,          other_targets};
  batch.pair_keys.push_back(xxh3_64(std::as_bytes(std::span(parts))));
  batch.pair_records.push_back(config_.first_record +
                               static_cast<std::int64_t>(pairs_->document(position)));
  ++batch.num_pairs;
  mismatched.num_pairs = batch.num_pairs;
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
  Batch mismatched = batch;
  if (!first.samples_are_pairs()) resize(batch, std::ssize(drawn), first.seq_len());
  for (std::int64_t row = 0; row < std::ssize(drawn); ++row) {
    const auto& [index, samples, position] = drawn[static_cast<std::size_t>(row)];
    TRIREME_ASSERT(samples->seq_len() == first.seq_len() &&
                   samples->samples_are_pairs() == first.samples_are_pairs() &&
                   samples->samples_are_answers() == first.samples_are_answers());
    if (!first.samples_are_pairs() || index != kNoSample) batch.sample_indices.push_back(index);
    if (index == kNoSample) {
      if (!first.samples_are_pairs()) pad_row(0, row, samples->pad_id_, batch);
    } else if (first.samples_are_answers()) {
      samples->add_answer(position, batch, mismatched);
    } else if (first.samples_are_pairs()) {
      samples->add_pair(position, batch);
    } else {
      samples->fill_row(position, row, batch);
    }
  }
  if (first.samples_are_pairs()) first.finish_pairs(batch);
  if (first.samples_are_answers()) {
    mismatched.sample_indices = batch.sample_indices;
    mismatched.pair_records = batch.pair_records;
    mismatched.pair_keys = batch.pair_keys;
    first.finish_pairs(mismatched);
    batch.mismatched = std::make_shared<const Batch>(std::move(mismatched));
  }
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
