#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/order/stream.hpp"

/// The members of a SampleStream, for the files that implement it.
namespace trireme::data {

/// Several SampleSets as one: their sequences are concatenated and share one order.
struct SampleUnion {
  std::vector<const SampleSet*> sets;
  std::vector<std::uint64_t> first{0};  // [sets+1]
  std::optional<SampleOrder> order;     // nullopt if there is no sequence

  SampleUnion() = default;
  SampleUnion(std::vector<const SampleSet*> members, const OrderConfig& config);

  [[nodiscard]] std::uint64_t size() const noexcept { return first.back(); }

  /// Returns the location of sample number `ordinal`, counted over all epochs. The caller sets
  /// `source` of the result.
  [[nodiscard]] StreamLocation locate(std::uint64_t ordinal) const;
};

/// A source at one sequence length: first the rest of an earlier epoch, then whole epochs.
struct SampleStream::LengthPhase {
  std::int64_t seq_len = 0;
  SampleUnion rest;
  SampleUnion whole;

  [[nodiscard]] StreamLocation locate(std::uint64_t ordinal) const;
};

struct SampleStream::Source {
  std::vector<std::string> folders;
  std::vector<const TokenSet*> sets;
  std::vector<LengthPhase> length_phases;
  std::uint64_t consumed = 0;            // samples of the source so far, while the stream is built
  std::uint64_t consumed_of_length = 0;  // samples of the last length phase so far
};

struct SampleStream::Phase {
  struct Entry {  // one source of the phase
    std::size_t source = 0;
    std::size_t length_phase = 0;
    double weight = 1;
    std::uint64_t before = 0;            // samples of the source before this phase
    std::uint64_t before_in_length = 0;  // samples of this length phase before this phase
  };

  std::int64_t begin = 0;  // first sample
  std::int64_t seq_len = 0;
  std::vector<Entry> entries;
  std::unique_ptr<Blend> blend;  // null for one source

  /// Returns for each entry its number of samples among the first `count` samples of the phase.
  [[nodiscard]] std::vector<std::uint64_t> counts(std::uint64_t count) const;
};

struct SampleStream::Parts {
  StreamConfig config;
  std::vector<std::unique_ptr<TokenSet>> sets;
  std::vector<std::unique_ptr<SampleSet>> samples;
  std::vector<Source> sources;
  std::vector<Phase> phases;

  [[nodiscard]] SampleConfig view(const TokenSet& set, std::int64_t seq_len) const;
};

}  // namespace trireme::data
