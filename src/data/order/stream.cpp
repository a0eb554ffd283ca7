#include "data/order/stream.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "data/order/stream_parts.hpp"

/// Implements the lookups in a complete stream. stream_builder.cpp builds the stream, and
/// stream_state.cpp compares it with a checkpoint.
namespace trireme::data {

SampleUnion::SampleUnion(std::vector<const SampleSet*> members, const OrderConfig& config)
    : sets(std::move(members)) {
  for (const SampleSet* set : sets) first.push_back(first.back() + set->size());
  if (size() != 0) order.emplace(size(), config);
}

StreamLocation SampleUnion::locate(std::uint64_t ordinal) const {
  const SampleLocation drawn = order->locate(ordinal);
  const auto after = std::upper_bound(first.begin(), first.end(), drawn.position);
  const auto set = static_cast<std::size_t>(after - first.begin()) - 1;
  return {sets[set], drawn.position - first[set], 0, drawn.epoch};
}

StreamLocation SampleStream::LengthPhase::locate(std::uint64_t ordinal) const {
  return ordinal < rest.size() ? rest.locate(ordinal) : whole.locate(ordinal - rest.size());
}

std::vector<std::uint64_t> SampleStream::Phase::counts(std::uint64_t count) const {
  return blend ? blend->counts(count) : std::vector<std::uint64_t>{count};
}

SampleStream::SampleStream(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

SampleStream::SampleStream(SampleStream&&) noexcept = default;

SampleStream::~SampleStream() = default;

SampleStream::SampleStream(const SampleSet& samples, const OrderConfig& order)
    : parts_(std::make_unique<Parts>()) {
  Source& source = parts_->sources.emplace_back();
  LengthPhase& length_phase = source.length_phases.emplace_back();
  length_phase.seq_len = samples.seq_len();
  length_phase.whole = SampleUnion({&samples}, order);
  Phase& phase = parts_->phases.emplace_back();
  phase.seq_len = samples.seq_len();
  phase.entries.emplace_back();
}

const SampleStream::Phase& SampleStream::phase_of(std::int64_t index) const {
  const auto after =
      std::upper_bound(parts_->phases.begin(), parts_->phases.end(), index,
                       [](std::int64_t i, const Phase& phase) { return i < phase.begin; });
  TRIREME_ASSERT(after != parts_->phases.begin());
  return *(after - 1);
}

StreamLocation SampleStream::locate(std::int64_t index) const {
  const Phase& phase = phase_of(index);
  const auto i = static_cast<std::uint64_t>(index - phase.begin);
  const BlendPick pick = phase.blend ? phase.blend->pick(i) : BlendPick{0, i};
  const Phase::Entry& entry = phase.entries[pick.source];
  StreamLocation place = parts_->sources[entry.source].length_phases[entry.length_phase].locate(
      entry.before_in_length + pick.ordinal);
  place.source = entry.source;
  return place;
}

std::int64_t SampleStream::seq_len(std::int64_t index) const {
  return phase_of(index).seq_len;
}

std::int64_t SampleStream::max_seq_len() const {
  std::int64_t longest = 0;
  for (const Phase& phase : parts_->phases) longest = std::max(longest, phase.seq_len);
  return longest;
}

std::vector<std::int64_t> SampleStream::seq_lens() const {
  std::vector<std::int64_t> lengths;
  for (const Phase& phase : parts_->phases) lengths.push_back(phase.seq_len);
  return lengths;
}

bool SampleStream::samples_are_pairs() const {
  return parts_->sources.front().length_phases.front().whole.sets.front()->samples_are_pairs();
}

std::optional<std::uint64_t> SampleStream::epoch_size() const {
  if (parts_->phases.size() != 1 || parts_->sources.size() != 1) return std::nullopt;
  return parts_->sources.front().length_phases.front().whole.size();
}

std::int64_t SampleStream::count_targets(std::int64_t first, std::int64_t count) const {
  std::int64_t sum = 0;
  for (std::int64_t i = first; i < first + count; ++i) {
    const StreamLocation at = locate(i);
    sum += at.samples->num_targets(at.position);
  }
  return sum;
}

std::optional<std::int64_t> SampleStream::cut_update(std::int64_t next_sample,
                                                     std::int64_t global_batch) const {
  for (std::size_t p = 1; p < parts_->phases.size(); ++p) {
    const Phase& phase = parts_->phases[p];
    if (phase.begin > next_sample && (phase.begin - next_sample) % global_batch != 0 &&
        phase.seq_len != parts_->phases[p - 1].seq_len)
      return phase.begin / global_batch + 1;
  }
  return std::nullopt;
}

Batch SampleStream::make_batch(std::int64_t first, std::int64_t count, std::int64_t end) const {
  std::vector<DrawnSample> drawn;
  for (std::int64_t i = first; i < first + count; ++i) {
    const StreamLocation at = locate(std::min(i, end - 1));
    drawn.push_back({i < end ? i : kNoSample, at.samples, at.position});
  }
  return gather_batch(drawn);
}

std::vector<std::uint64_t> SampleStream::consumed(std::int64_t index) const {
  std::vector<std::uint64_t> consumed(parts_->sources.size(), 0);
  for (std::size_t p = 0; p < parts_->phases.size(); ++p) {
    const Phase& phase = parts_->phases[p];
    if (phase.begin >= index) break;
    std::int64_t end = index;
    if (p + 1 < parts_->phases.size()) end = std::min(end, parts_->phases[p + 1].begin);
    const auto counts = phase.counts(static_cast<std::uint64_t>(end - phase.begin));
    for (std::size_t e = 0; e < counts.size(); ++e) consumed[phase.entries[e].source] += counts[e];
  }
  return consumed;
}

SampleConfig SampleStream::Parts::view(const TokenSet& set, std::int64_t seq_len) const {
  SampleConfig view{.seq_len = seq_len,
                    .packing = config.packing,
                    .cross_documents = config.cross_documents,
                    .row_multiple = config.row_multiple,
                    .answers_only = config.answers_only};
  std::int64_t documents = 0;
  for (const auto& one : sets) {
    if (one.get() == &set) view.first_record = documents;
    documents += static_cast<std::int64_t>(one->num_documents());
  }
  return view;
}

SampleConfig SampleStream::view(const TokenSet& set, std::int64_t seq_len) const {
  return parts_->view(set, seq_len);
}

const TokenSet& SampleStream::first_set() const {
  return *parts_->sets.front();
}

std::vector<const TokenSet*> SampleStream::sets() const {
  std::vector<const TokenSet*> sets;
  for (const auto& set : parts_->sets) sets.push_back(set.get());
  return sets;
}

std::vector<const SampleSet*> SampleStream::sample_sets() const {
  std::vector<const SampleSet*> sets;
  for (const Source& source : parts_->sources) {
    for (const LengthPhase& length_phase : source.length_phases)
      sets.insert(sets.end(), length_phase.whole.sets.begin(), length_phase.whole.sets.end());
  }
  return sets;
}

std::size_t SampleStream::num_phases() const {
  return parts_->phases.size();
}

std::size_t SampleStream::num_sources() const {
  return parts_->sources.size();
}

}  // namespace trireme::data
