#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "core/files/json.hpp"
#include "data/shards/token_set.hpp"

namespace trireme {

/// How long the documents of a set are, in tokens; of pairs, each side with its prompt.
struct LengthHistogram {
  std::array<std::uint64_t, 65> count{};  // [b]: of 2^(b-1) to 2^b - 1 tokens; [0]: of none
  std::uint64_t total = 0;
  std::uint64_t tokens = 0;
  std::uint64_t shortest = 0;
  std::uint64_t longest = 0;

  void add(std::uint64_t length);
};

/// Reads the document tables, 8 bytes a document, shard by shard.
LengthHistogram length_histogram(const TokenSet& set);

/// {"shortest", "longest", "mean", "buckets": [{"from", "to", "count"}, ...]}, empty ends left out.
Json to_json(const LengthHistogram& histogram);

/// A line a bucket, with a bar.
std::string to_text(const LengthHistogram& histogram);

}  // namespace trireme
