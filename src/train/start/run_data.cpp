#include "train/start/run_data.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/log.hpp"
#include "data/shards/set_content.hpp"
#include "text/tokenizer.hpp"

namespace trireme::train {
namespace {

/// Opens the tokenizer of the first set of a plan.
text::Tokenizer first_tokenizer(const data::StreamConfig& stream) {
  const std::string& set = stream.phases.front().sources.front().folders.front();
  return text::Tokenizer::from_files(data::TokenSet::open(set).tokenizer_files(), set);
}

/// Returns the divisor of all row lengths: rows are padded to a multiple of this number, so that tp
/// and cp can split them.
std::int64_t row_multiple(const parallel::ParallelConfig& parallel) {
  return parallel.tp * (parallel.cp == 1 ? 1 : 2 * parallel.cp);
}

/// Returns the chat format of all sets. Throws Error(usage) if they differ.
std::string common_chat_template(const data::SampleStream& stream, const std::string& path) {
  const std::string first = stream.first_set().manifest().chat_template();
  for (const data::TokenSet* set : stream.sets()) {
    const std::string name = set->manifest().chat_template();
    if (name == first) continue;
    fail(ErrorKind::usage,
         "--data {}: {} was packed as {}, {} as {}: pack them with one --template", path,
         stream.first_set().directory().string(), first, set->directory().string(), name);
  }
  return first;
}

}  // namespace

std::string RunData::local(const std::string& folder, const std::string& stage) {
  if (stage.empty()) return folder;
  auto& copy = staged_[folder];
  if (copy == nullptr) {
    copy = std::make_unique<data::StagedSet>(folder, stage);
    if (copy->made()) log::info(formatted("{}: copied to {}", folder, copy->directory().string()));
  }
  return copy->directory().string();
}

data::SampleStream RunData::open_stream(const RunConfig& config,
                                        std::span<const std::string_view> kinds,
                                        const Choose& choose) {
  const DataConfig& data = config.data;
  data::StreamConfig stream{
      .phases = data::read_plan(data.path, "data.path", kinds, config.train.seq_len),
      .seq_len = config.train.seq_len,
      .global_batch = config.train.global_batch,
      .seed = static_cast<std::uint64_t>(config.train.seed),
      .shuffle_block = static_cast<std::uint64_t>(data.shuffle_block),
      .blend_rule = data::parse_blend_rule(data.blend_rule, "data.blend_rule"),
      .packing = data::parse_packing(data.packing, "data.packing"),
      .cross_documents = data.cross_documents,
      .split = data.split};
  for (data::PlanPhase& phase : stream.phases) {
    for (data::PlanSource& source : phase.sources) {
      for (std::string& folder : source.folders) folder = local(folder, data.stage);
    }
  }
  stream.row_multiple = row_multiple(config.parallel);
  std::optional<text::Tokenizer> tokenizer;  // opened for the first word and then reused
  choose(stream, [&](std::string_view word) {
    if (!tokenizer) tokenizer = first_tokenizer(stream);
    return tokenizer->encode(word, {.add_special_tokens = false});
  });
  return data::SampleStream::open(stream);
}

RunData::RunData(const RunConfig& config, std::span<const std::string_view> kinds,
                 const Choose& choose)
    : stream_(open_stream(config, kinds, choose)) {
  const data::TokenSet& set = stream_.first_set();
  data::require_kind(set, kinds, cat("--data ", config.data.path));
  seq_len_ = config.train.seq_len == 0 ? set.seq_len() : config.train.seq_len;
  chat_template_ = common_chat_template(stream_, config.data.path);
  tokenizer_files_ = set.tokenizer_files();  // reports damaged files before the first step
  open_validation(config, kinds);
}

void RunData::open_validation(const RunConfig& config, std::span<const std::string_view> kinds) {
  const DataConfig& data = config.data;
  validates_ = config.train.eval_every > 0;
  data::refuse_texts(data.valid_path, "data.valid_path", kinds, config.train.seq_len);
  data::refuse_blend(data.valid_path, "data.valid_path");
  if (!data.valid_path.empty()) {
    valid_set_.emplace(data::TokenSet::open(local(data.valid_path, data.stage)));
    data::require_kind(*valid_set_, kinds, cat("data.valid_path ", data.valid_path));
    if (valid_set_->manifest().tokenizer_hash != stream_.first_set().manifest().tokenizer_hash) {
      fail(ErrorKind::usage, "data.valid_path {} was packed with another tokenizer than {}",
           data.valid_path, data.path);
    }
    valid_samples_.emplace_back(*valid_set_, stream_.view(*valid_set_, seq_len_));
  } else if (config.train.eval_every > 0 && data.split.empty()) {
    fail(ErrorKind::usage, "train.eval_every = {} needs data.valid_path or data.split",
         config.train.eval_every);
  } else if (config.train.eval_every > 0) {
    const data::Split split = data::Split::parse(data.split, "data.split");
    const data::SplitPart part =
        data.valid_part == "test" ? data::SplitPart::test : data::SplitPart::valid;
    if (!split.has(part))
      fail(
          ErrorKind::usage,
          "data.split = {} has no share for {} (data.valid_part), from which train.eval_every = {} "
          "takes validation data. Shares are numbers for train, valid and test, such as 98,1,1",
          data.split, data.valid_part, config.train.eval_every);
    for (const data::TokenSet* set : stream_.sets()) {
      data::SampleConfig view = stream_.view(*set, seq_len_);
      view.documents = split.part(part, set->num_documents());
      valid_samples_.emplace_back(*set, view);
    }
  }
  keep_valid_tokens(data.valid_tokens);
}

void RunData::keep_valid_tokens(std::int64_t wanted) {
  if (wanted == 0 || valid_samples_.empty()) return;
  if (!(valid_set_ ? *valid_set_ : stream_.first_set()).contents().has_sequences()) {
    fail(ErrorKind::usage,
         "data.valid_tokens = {} needs validation data of kind pretrain or sft, because it counts "
         "sequences. Leave the key out",
         wanted);
  }
  if (wanted % seq_len_ != 0) {
    fail(ErrorKind::usage,
         "data.valid_tokens is {}. It must be a multiple of the sequence length ({} tokens), such "
         "as {}",
         wanted, seq_len_, (wanted / seq_len_ + 1) * seq_len_);
  }
  auto left = static_cast<std::uint64_t>(wanted / seq_len_);
  for (data::SampleSet& samples : valid_samples_) {
    samples.keep_first(left);
    left -= samples.size();
  }
  if (left > 0) {
    fail(
        ErrorKind::usage,
        "data.valid_tokens is {}, but the validation data has only {} sequences of {} tokens. Give "
        "{} or less, or 0 for all",
        wanted, static_cast<std::uint64_t>(wanted / seq_len_) - left, seq_len_,
        wanted - static_cast<std::int64_t>(left) * seq_len_);
  }
  std::erase_if(valid_samples_, [](const data::SampleSet& samples) { return samples.size() == 0; });
}

std::vector<const data::SampleSet*> RunData::sample_sets() const {
  std::vector<const data::SampleSet*> sets = stream_.sample_sets();
  if (!validates_) return sets;
  for (const data::SampleSet& samples : valid_samples_) sets.push_back(&samples);
  return sets;
}

std::int64_t RunData::samples_of_epochs(double epochs) const {
  const auto size = stream_.epoch_size();
  if (!size) {
    fail(
        ErrorKind::usage,
        "train.steps = 0 needs the number of samples in one pass over the data, which data.path with weights or phases does not have: set train.steps");
  }
  constexpr double kRounding = 1e-9;  // so that 0.1 x 30 is 3 and is not rounded up to 4
  const double samples = std::ceil(epochs * static_cast<double>(*size) * (1 - kRounding));
  if (!(samples < 1e15)) {
    fail(ErrorKind::usage, "train.epochs = {} makes {} samples, must be below 1e15", epochs,
         samples);
  }
  return std::max<std::int64_t>(static_cast<std::int64_t>(samples), 1);
}

std::string RunData::size_text() const {
  if (const auto size = stream_.epoch_size())
    return formatted(
        "{} {}s in ", *size,
        stream_.samples_are_pairs() ? stream_.first_set().contents().document : "sequence");
  return formatted("{} sources in ", stream_.num_sources());
}

}  // namespace trireme::train
