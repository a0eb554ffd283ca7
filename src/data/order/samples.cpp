#include "data/order/samples.hpp"

#include <utility>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"
#include "data/sequences/pack_documents.hpp"

/// Implements samples of a set; sample_batches.cpp makes batches of them.
namespace trireme::data {
namespace {

bool holds_pairs(const TokenSet& set) {
  return set.contents().has_pairs();
}

bool is_masked(const TokenSet& set) {
  return set.contents().is_masked();
}

DocumentRange documents_of(const TokenSet& set, const SampleConfig& config) {
  return config.documents.value_or(DocumentRange{0, set.num_documents()});
}

/// Returns the names of the kinds in which every token is a target.
std::string whole_kinds() {
  std::vector<std::string_view> names;
  for (const SetContent& content : set_contents())
    if (!content.is_masked()) names.push_back(content.name);
  return joined(names, " or ");
}

/// The prompts of a set, one document each. A run generates their answers, so each counts as one
/// target.
class PromptSequences final : public Sequences {
 public:
  PromptSequences(const TokenSet& set, const DocumentRange& documents)
      : set_(set), documents_(documents) {}

  [[nodiscard]] std::uint64_t size() const override { return documents_.end - documents_.begin; }

  [[nodiscard]] std::vector<Piece> pieces(std::uint64_t position) const override {
    std::uint64_t doc = documents_.begin + position;
    std::size_t number = 0;
    const auto& shards = set_.manifest().shards;
    while (doc >= shards[number].counts.documents) doc -= shards[number++].counts.documents;
    const TokenShard& shard = set_.shard(number);
    const std::uint64_t length = shard.document_begin(doc + 1) - shard.document_begin(doc);
    return {{number, Segment{.doc = static_cast<std::uint32_t>(doc),
                             .length = static_cast<std::uint32_t>(length)}}};
  }

  [[nodiscard]] std::int64_t num_targets(std::uint64_t /*position*/) const override { return 1; }

 private:
  const TokenSet& set_;
  DocumentRange documents_;
};

std::unique_ptr<Sequences> make_sequences(const TokenSet& set, const SampleConfig& config) {
  check_seq_len(config.seq_len, "train.seq_len");
  if (config.cross_documents && config.packing != Packing::concat)
    fail(ErrorKind::usage, "data.cross_documents = true requires data.packing = concat");
  if (config.packing == Packing::concat && is_masked(set)) {
    fail(ErrorKind::usage, "{} has kind {}, but data.packing = concat requires {}",
         set.directory().string(), set.kind(), whole_kinds());
  }
  if (holds_pairs(set)) return nullptr;
  if (set.contents().has_prompts())
    return std::make_unique<PromptSequences>(set, documents_of(set, config));
  if (config.packing == Packing::concat)
    return std::make_unique<ConcatSequences>(set, config.seq_len, documents_of(set, config));
  return packed_sequences(set, config.seq_len, documents_of(set, config));
}

std::unique_ptr<Pairs> make_pairs(const TokenSet& set, const SampleConfig& config) {
  if (!holds_pairs(set)) return nullptr;
  return std::make_unique<Pairs>(set, config.seq_len, documents_of(set, config));
}

/// Returns the reason why a set has no training targets, and advice.
std::string no_targets_message(const TokenSet& set, const SampleConfig& config,
                               std::uint64_t size) {
  const DocumentRange documents = documents_of(set, config);
  const char* pack =
      config.documents ? "give that part more documents (data.split), or pack" : "pack";
  if (documents.begin == documents.end || (size == 0 && !is_masked(set))) {
    return formatted(
        " contains no tokens for training or validation; {} documents of two tokens or more", pack);
  }
  if (!is_masked(set)) {
    return formatted(
        " has no training targets: at length {} every part of a document is one token or masked; {} documents of two tokens or more",
        config.seq_len, pack);
  }
  return formatted(
      " has no training targets: cut to {} tokens, no {} keeps a target; give a longer train.seq_len",
      config.seq_len, set.contents().document);
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
    : SampleSet(set, config, make_sequences(set, config), make_pairs(set, config)) {
  if (has_targets()) return;
  const std::string part = config.documents
                               ? formatted(", documents {} to {} (data.split),",
                                           config.documents->begin, config.documents->end)
                               : std::string();
  fail(ErrorKind::data, "{}{}{}", set.directory().string(), part,
       no_targets_message(set, config, size()));
}

SampleSet::SampleSet(const TokenSet& set, const SampleConfig& config,
                     std::unique_ptr<Sequences> sequences, std::unique_ptr<Pairs> pairs)
    : set_(&set),
      config_(config),
      pad_id_(set.pad_id().value_or(0)),
      key_of_set_(xxh3_64(formatted("{} {}", set.content_hash(), config.seq_len))),
      sequences_(std::move(sequences)),
      pairs_(std::move(pairs)),
      size_(pairs_ ? pairs_->size() : sequences_->size()) {
  if (config.cross_documents) joined_ = dynamic_cast<const ConcatSequences*>(sequences_.get());
}

SampleSet SampleSet::rest(const std::function<bool(std::uint64_t)>& taken,
                          std::int64_t seq_len) const {
  SampleConfig config = config_;
  config.seq_len = seq_len;
  check_seq_len(seq_len, "train.seq_len");
  if (samples_are_pairs())
    return {*set_, config, nullptr, std::make_unique<Pairs>(*pairs_, taken, seq_len)};
  if (set_->contents().has_prompts()) {
    fail(ErrorKind::usage,
         "data.path changes the sequence length of prompts ({}). Use one length in all phases.",
         set_->directory().string());
  }
  return {*set_, config, rest_of_sequences(*set_, *sequences_, taken, seq_len), nullptr};
}

DocumentRange SampleSet::documents() const {
  return documents_of(*set_, config_);
}

std::uint64_t SampleSet::pair_key(std::uint64_t position) const {
  Batch batch;
  batch.segment_bounds.push_back(0);
  Batch mismatched = batch;
  samples_are_answers() ? add_answer(position, batch, mismatched) : add_pair(position, batch);
  return batch.pair_keys.front();
}

bool SampleSet::has_targets() const {
  for (std::uint64_t position = 0; position < size(); ++position) {
    if (num_targets(position) > 0) return true;
  }
  return false;
}

std::int64_t SampleSet::num_targets(std::uint64_t position) const {
  if (samples_are_pairs()) return pairs_->num_targets(position, config_.answers_only);
  if (joined_ == nullptr) return sequences_->num_targets(position);
  std::int64_t tokens = 0;
  for (const TokenRun& run : joined_->runs(position))
    tokens += static_cast<std::int64_t>(run.length);
  return tokens - 1;
}

}  // namespace trireme::data
