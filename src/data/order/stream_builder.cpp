#include <algorithm>

#include "core/error.hpp"
#include "core/process/failpoints.hpp"
#include "core/process/stop_signals.hpp"
#include "data/order/stream.hpp"
#include "data/order/stream_parts.hpp"

namespace trireme::data {
namespace {

template <class T>
void must_agree(const TokenSet& set, const TokenSet& first, const char* what, T mine, T other) {
  if (mine == other) return;
  fail(ErrorKind::usage, "{} has {} {}, {} has {}: the sets of one run must agree",
       set.directory().string(), what, mine, first.directory().string(), other);
}

void check_alike(const TokenSet& set, const TokenSet& first) {
  must_agree(set, first, "kind", set.kind(), first.kind());
  must_agree(set, first, "a vocabulary of", set.vocab_size(), first.vocab_size());
  must_agree(set, first, "tokenizer", set.manifest().tokenizer_hash,
             first.manifest().tokenizer_hash);
}

}  // namespace

/// Builds the stream phase by phase and counts the samples of each source.
class SampleStream::Builder {
 public:
  explicit Builder(const StreamConfig& config)
      : parts_(std::make_unique<Parts>()), config_(config) {
    TRIREME_ASSERT(!config.phases.empty() && config.global_batch > 0);
    parts_->config = config;
    std::size_t folders = 0;
    for (const PlanPhase& phase : config.phases) {
      for (const PlanSource& source : phase.sources) folders += source.folders.size();
    }
    // All sets together keep at most as many files open as one set does alone.
    files_.max_open_files = std::max<std::size_t>(files_.max_open_files / folders, 1);
    if (!config.split.empty()) split_ = Split::parse(config.split, "data.split");
  }

  std::unique_ptr<Parts> build() {
    for (const PlanPhase& plan : config_.phases) {
      if (!parts_->phases.empty()) close_phase(first_sample(plan));
      open_phase(plan);
    }
    return std::move(parts_);
  }

 private:
  [[nodiscard]] std::int64_t first_sample(const PlanPhase& plan) const {
    std::int64_t sample = 0;
    if (__builtin_mul_overflow(plan.first_step - 1, config_.global_batch, &sample))
      fail(ErrorKind::usage, "data.path: step {} is too large", plan.first_step);
    return sample;
  }

  void open_phase(const PlanPhase& plan) {
    Phase phase;
    phase.begin = first_sample(plan);
    std::vector<double> weights;
    for (const PlanSource& asked : plan.sources) {
      Phase::Entry entry;
      entry.source = find_source(asked.folders);
      entry.weight = asked.weight;
      weights.push_back(asked.weight);
      phase.entries.push_back(entry);
    }
    if (config_.seq_len == 0) config_.seq_len = parts_->sets.front()->seq_len();
    phase.seq_len = plan.seq_len != 0 ? plan.seq_len : config_.seq_len;
    for (Phase::Entry& entry : phase.entries) {
      Source& source = parts_->sources[entry.source];
      if (source.length_phases.empty() || source.length_phases.back().seq_len != phase.seq_len)
        add_length_phase(entry.source, phase.seq_len);
      entry.length_phase = source.length_phases.size() - 1;
      entry.before = source.consumed;
      entry.before_in_length = source.consumed_of_length;
    }
    if (weights.size() > 1) phase.blend = make_blend(weights, config_.blend_rule);
    parts_->phases.push_back(std::move(phase));
  }

  /// Adds the samples of the last phase, up to sample `end`, to the counts of its sources.
  void close_phase(std::int64_t end) {
    const Phase& phase = parts_->phases.back();
    TRIREME_ASSERT(end > phase.begin);
    const auto counts = phase.counts(static_cast<std::uint64_t>(end - phase.begin));
    for (std::size_t e = 0; e < counts.size(); ++e) {
      Source& source = parts_->sources[phase.entries[e].source];
      source.consumed += counts[e];
      source.consumed_of_length += counts[e];
    }
  }

  std::size_t find_source(const std::vector<std::string>& folders) {
    for (std::size_t i = 0; i < parts_->sources.size(); ++i) {
      if (parts_->sources[i].folders == folders) return i;
    }
    Source source;
    source.folders = folders;
    for (const std::string& directory : folders) {
      failpoint("data.open_set");
      throw_if_stop_requested();
      parts_->sets.push_back(std::make_unique<TokenSet>(TokenSet::open(directory, files_)));
      source.sets.push_back(parts_->sets.back().get());
      check_alike(*source.sets.back(), *parts_->sets.front());
    }
    parts_->sources.push_back(std::move(source));
    return parts_->sources.size() - 1;
  }

  void add_length_phase(std::size_t index, std::int64_t seq_len) {
    Source& source = parts_->sources[index];
    const std::string number = formatted("/{}/{}", index, source.length_phases.size());
    LengthPhase length_phase;
    length_phase.seq_len = seq_len;
    if (!source.length_phases.empty())
      length_phase.rest = SampleUnion(rest_of(source, seq_len), order(number + "r"));
    std::vector<const SampleSet*> whole;
    for (const TokenSet* set : source.sets) {
      throw_if_stop_requested();
      whole.push_back(keep(SampleSet(*set, view(*set, seq_len))));
    }
    // The first set of a run has the same order as in a run with only this set.
    length_phase.whole = SampleUnion(std::move(whole), order(number == "/0/0" ? "" : number));
    source.length_phases.push_back(std::move(length_phase));
    source.consumed_of_length = 0;
  }

  /// Returns the rest of the current epoch of the source, packed at another length.
  std::vector<const SampleSet*> rest_of(const Source& source, std::int64_t seq_len) {
    if (config_.packing == Packing::concat) {
      fail(
          ErrorKind::usage,
          "data.path changes the sequence length of {} to {}, which requires data.packing = best-fit",
          source.folders.front(), seq_len);
    }
    const LengthPhase& last = source.length_phases.back();
    const bool in_rest = source.consumed_of_length < last.rest.size();
    const SampleUnion& from = in_rest ? last.rest : last.whole;
    const std::uint64_t drawn = source.consumed_of_length - (in_rest ? 0 : last.rest.size());
    const std::uint64_t in_epoch = drawn % from.size();
    if (!in_rest && in_epoch == 0) return {};
    std::vector<std::vector<bool>> taken;
    for (const SampleSet* set : from.sets) taken.emplace_back(set->size(), false);
    for (std::uint64_t ordinal = drawn - in_epoch; ordinal < drawn; ++ordinal) {
      const StreamLocation place = from.locate(ordinal);
      const auto set = std::find(from.sets.begin(), from.sets.end(), place.samples);
      taken[static_cast<std::size_t>(set - from.sets.begin())][place.position] = true;
    }
    std::vector<const SampleSet*> rest;
    for (std::size_t i = 0; i < from.sets.size(); ++i) {
      rest.push_back(keep(
          from.sets[i]->rest([&](std::uint64_t position) { return taken[i][position]; }, seq_len)));
    }
    return rest;
  }

  [[nodiscard]] SampleConfig view(const TokenSet& set, std::int64_t seq_len) const {
    SampleConfig view = parts_->view(set, seq_len);
    view.token_weights = config_.token_weights;
    if (split_) view.documents = split_->part(SplitPart::train, set.num_documents());
    return view;
  }

  [[nodiscard]] OrderConfig order(std::string_view stream) const {
    return {.seed = config_.seed,
            .shuffle = config_.shuffle,
            .stream = stream,
            .chunk = config_.shuffle_block};
  }

  const SampleSet* keep(SampleSet samples) {
    parts_->samples.push_back(std::make_unique<SampleSet>(std::move(samples)));
    return parts_->samples.back().get();
  }

  std::unique_ptr<Parts> parts_;
  StreamConfig config_;
  TokenSetOptions files_;
  std::optional<Split> split_;
};

SampleStream SampleStream::open(const StreamConfig& config) {
  return SampleStream(Builder(config).build());
}

}  // namespace trireme::data
