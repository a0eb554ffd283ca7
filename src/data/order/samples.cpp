#include "data/order/samples.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"
#include "data/sequences/pack_documents.hpp"

namespace trireme {
namespace {

std::unique_ptr<Sequences> make_sequences(const TokenSet& set, const SampleConfig& config) {
  check_seq_len(config.seq_len, "train.seq_len");
  if (set.kind() == schema::kKindDpo) {
    fail(ErrorKind::usage, "{} is of kind dpo: it holds pairs, which are no sequences",
         set.folder().string());
  }
  if (config.cross_documents && config.packing != Packing::concat)
    fail(ErrorKind::usage, "data.cross_documents = true needs data.packing = concat");
  if (config.packing == Packing::concat && set.kind() != "pretrain") {
    fail(ErrorKind::usage, "{} is of kind {}: data.packing = concat is for pretrain",
         set.folder().string(), set.kind());
  }
  const DocumentRange documents = config.documents.value_or(DocumentRange{0, set.num_documents()});
  if (config.packing == Packing::concat)
    return std::make_unique<ConcatSequences>(set, config.seq_len, documents);
  return packed_sequences(set, config.seq_len, documents);
}

}  // namespace

Packing parse_packing(std::string_view text, std::string_view name) {
  if (text == name_of(Packing::best_fit)) return Packing::best_fit;
  if (text == name_of(Packing::concat)) return Packing::concat;
  fail(ErrorKind::usage, "{} = {}, must be best-fit or concat", name, text);
}

std::string_view name_of(Packing packing) {
  return packing == Packing::best_fit ? "best-fit" : "concat";
}

SampleSet::SampleSet(const TokenSet& set, const SampleConfig& config)
    : SampleSet(set, config.seq_len, make_sequences(set, config)) {
  if (config.cross_documents) joined_ = dynamic_cast<const ConcatSequences*>(sequences_.get());
  if (has_targets()) return;
  const std::string part = config.documents
                               ? formatted(", documents {} to {} (data.split),",
                                           config.documents->begin, config.documents->end)
                               : std::string();
  fail(
      ErrorKind::data, "{}{}{}{} documents of two tokens or more", set.folder().string(), part,
      size() == 0
          ? formatted(" holds no tokens: nothing to train on or to validate with; ")
          : formatted(
                " has nothing to predict: at length {} every piece of a document is one token or masked; ",
                seq_len_),
      config.documents ? "give that part more documents (data.split), or pack" : "pack");
}

bool SampleSet::has_targets() const {
  for (std::uint64_t position = 0; position < size(); ++position) {
    if (num_targets(position) > 0) return true;
  }
  return false;
}

SampleSet::SampleSet(const TokenSet& set, std::int64_t seq_len,
                     std::unique_ptr<Sequences> sequences)
    : set_(&set),
      seq_len_(seq_len),
      pad_id_(set.pad_id().value_or(0)),
      sequences_(std::move(sequences)),
      size_(sequences_->size()) {}

std::int64_t SampleSet::num_targets(std::uint64_t position) const {
  if (joined_ == nullptr) return sequences_->num_targets(position);
  std::int64_t tokens = 0;
  for (const TokenRun& run : joined_->runs(position))
    tokens += static_cast<std::int64_t>(run.length);
  return tokens - 1;
}

void SampleSet::read_checked(const TokenShard& shard, std::uint64_t begin,
                             std::span<std::int64_t> ids) const {
  shard.read_tokens(begin, ids);
  const auto outside = std::find_if(ids.begin(), ids.end(), [&](std::int64_t id) {
    return id >= static_cast<std::int64_t>(set_->vocab_size());
  });
  if (outside != ids.end()) {
    fail(ErrorKind::data, "{}: token {} at {}, the vocabulary has {}", shard.path().string(),
         *outside, begin + static_cast<std::uint64_t>(outside - ids.begin()), set_->vocab_size());
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
  if (joined_ != nullptr) return fill_joined_row(position, row, batch);
  std::int64_t used = 0;
  for (const Piece& piece : sequences_->pieces(position)) {
    const std::int64_t length = piece.segment.length;
    if (length == 0 || length > seq_len_ - used) {
      fail(ErrorKind::data, "{}: sequence {} of the set at length {} is overfull",
           set_->shard(piece.shard).path().string(), position, seq_len_);
    }
    fill_segment(piece, row * seq_len_ + used, batch);
    used += length;
  }
  pad_row(used, row, pad_id_, batch);
}

void SampleSet::fill_joined_row(std::uint64_t position, std::int64_t row, Batch& batch) const {
  std::vector<std::int64_t> ids;  // with the token behind the row, if there is one
  for (const TokenRun& run : joined_->runs(position)) {
    ids.resize(ids.size() + run.length);
    read_checked(set_->shard(run.shard), run.begin, std::span(ids).last(run.length));
  }
  const std::int64_t length = std::min(static_cast<std::int64_t>(ids.size()), seq_len_);
  for (std::int64_t i = 0; i < length; ++i) {
    const auto here = static_cast<std::size_t>(row * seq_len_ + i);
    const auto next = static_cast<std::size_t>(i) + 1;
    batch.tokens[here] = ids[next - 1];
    batch.positions[here] = i;
    if (next < ids.size()) batch.targets[here] = ids[next];
  }
  batch.num_targets += static_cast<std::int64_t>(ids.size()) - 1;
  batch.segment_bounds.push_back(static_cast<std::int32_t>(row * seq_len_ + length));
  pad_row(length, row, pad_id_, batch);
}

Batch SampleSet::make_batch(std::span<const std::int64_t> indices, const SampleOrder& order) const {
  TRIREME_ASSERT(order.num_samples() == size());
  Batch batch = start_batch(indices, seq_len_);
  for (std::int64_t row = 0; row < batch.B; ++row) {
    const std::int64_t index = indices[static_cast<std::size_t>(row)];
    if (index == kNoSample) {
      pad_row(0, row, pad_id_, batch);
    } else {
      fill_row(order.place(static_cast<std::uint64_t>(index)).position, row, batch);
    }
  }
  return batch;
}

Batch start_batch(std::span<const std::int64_t> indices, std::int64_t seq_len) {
  Batch batch;
  batch.B = static_cast<std::int64_t>(indices.size());
  batch.T = seq_len;
  const std::int64_t total = batch.B * batch.T;
  if (total > std::numeric_limits<std::int32_t>::max()) {
    fail(ErrorKind::usage, "a batch of {} x {} tokens, must be under 2^31: lower train.micro_batch",
         batch.B, batch.T);
  }
  batch.tokens.resize(static_cast<std::size_t>(total));
  batch.targets.assign(static_cast<std::size_t>(total), kIgnoreTarget);
  batch.positions.resize(static_cast<std::size_t>(total));
  batch.segment_bounds.push_back(0);
  batch.sample_indices.assign(indices.begin(), indices.end());
  return batch;
}

void pad_row(std::int64_t begin, std::int64_t row, std::int64_t pad_id, Batch& batch) {
  if (begin == batch.T) return;
  for (std::int64_t i = begin; i < batch.T; ++i) {
    const auto at = static_cast<std::size_t>(row * batch.T + i);
    batch.tokens[at] = pad_id;
    batch.positions[at] = i - begin;
  }
  batch.segment_bounds.push_back(static_cast<std::int32_t>((row + 1) * batch.T));
}

}  // namespace trireme
