#pragma once
#include <memory>
#include <string>
#include <vector>

#include "data/order/stream.hpp"

/// What a SampleStream is made of; for the files that implement it.
namespace trireme {

/// SampleSets seen as one, sequences of the first before those of the second, in an order over all.
struct SampleUnion {
  std::vector<const SampleSet*> sets;
  std::vector<std::uint64_t> first{0};  // [sets+1]
  std::optional<SampleOrder> order;     // none when there is no sequence

  SampleUnion() = default;
  SampleUnion(std::vector<const SampleSet*> members, const OrderConfig& config);

  [[nodiscard]] std::uint64_t size() const noexcept { return first.back(); }

  /// `ordinal` counts on through the epochs. source is left 0.
  [[nodiscard]] StreamPlace place(std::uint64_t ordinal) const;
};

/// A source at one length: first what a change of length left of an epoch, then whole epochs.
struct SampleStream::Leg {
  std::int64_t seq_len = 0;
  SampleUnion rest;
  SampleUnion whole;

  [[nodiscard]] StreamPlace place(std::uint64_t ordinal) const;
};

struct SampleStream::Source {
  std::vector<std::string> folders;
  std::vector<const TokenSet*> sets;
  std::vector<Leg> legs;
  std::uint64_t consumed = 0;         // of the source, while the stream is built
  std::uint64_t consumed_of_leg = 0;  // of them, of the last leg
};

struct SampleStream::Phase {
  struct Entry {  // one source of the phase
    std::size_t source = 0;
    std::size_t leg = 0;
    double weight = 1;
    std::uint64_t before = 0;         // samples of the source before this phase
    std::uint64_t before_in_leg = 0;  // of them, of this leg
  };

  std::int64_t begin = 0;  // first sample
  std::int64_t seq_len = 0;
  std::vector<Entry> entries;
  std::unique_ptr<Blend> blend;  // none for one source

  /// [entries] of the phase's first `count` samples.
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

}  // namespace trireme
