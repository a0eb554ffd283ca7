#include "data_prep/inspect/length_histogram.hpp"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "data/shards/set_kind.hpp"

namespace trireme {
namespace {

struct Bounds {
  std::uint64_t from = 0;
  std::uint64_t to = 0;
};

Bounds bounds_of(std::size_t bucket) {
  if (bucket == 0) return {0, 0};
  const std::uint64_t from = std::uint64_t{1} << (bucket - 1);
  return {from, from - 1 + from};
}

/// Buckets from the first to the last that is not empty.
std::pair<std::size_t, std::size_t> used(const LengthHistogram& histogram) {
  std::size_t first = 0;
  std::size_t end = histogram.count.size();
  while (first < end && histogram.count[first] == 0) ++first;
  while (end > first && histogram.count[end - 1] == 0) --end;
  return {first, end};
}

}  // namespace

void LengthHistogram::add(std::uint64_t length) {
  ++count[static_cast<std::size_t>(std::bit_width(length))];
  shortest = total == 0 ? length : std::min(shortest, length);
  longest = std::max(longest, length);
  tokens += length;
  ++total;
}

LengthHistogram length_histogram(const TokenSet& set) {
  LengthHistogram histogram;
  for (std::size_t s = 0; s < set.num_shards(); ++s) {
    if (set_kind(set.kind()).has_pairs()) {
      const PairTable pairs = set.shard(s).pair_lengths();
      for (std::size_t i = 0; i < pairs.prompt_len.size(); ++i) {
        histogram.add(std::uint64_t{pairs.prompt_len[i]} + pairs.chosen_len[i]);
        histogram.add(std::uint64_t{pairs.prompt_len[i]} + pairs.rejected_len[i]);
      }
    } else {
      const std::vector<std::uint64_t> offsets = set.shard(s).document_offsets();
      for (std::size_t i = 0; i + 1 < offsets.size(); ++i)
        histogram.add(offsets[i + 1] - offsets[i]);
    }
  }
  return histogram;
}

Json to_json(const LengthHistogram& histogram) {
  Json json = Json::object();
  json["shortest"] = histogram.shortest;
  json["longest"] = histogram.longest;
  json["mean"] = histogram.total == 0
                     ? 0.0
                     : static_cast<double>(histogram.tokens) / static_cast<double>(histogram.total);
  json["buckets"] = Json::array();
  const auto [first, end] = used(histogram);
  for (std::size_t bucket = first; bucket < end; ++bucket) {
    const Bounds bounds = bounds_of(bucket);
    json["buckets"].push_back(
        {{"from", bounds.from}, {"to", bounds.to}, {"count", histogram.count[bucket]}});
  }
  return json;
}

std::string to_text(const LengthHistogram& histogram) {
  constexpr std::uint64_t kBar = 40;
  std::string text;
  const auto [first, end] = used(histogram);
  const std::uint64_t most = *std::max_element(histogram.count.begin(), histogram.count.end());
  for (std::size_t bucket = first; bucket < end; ++bucket) {
    const Bounds bounds = bounds_of(bucket);
    const std::uint64_t count = histogram.count[bucket];
    const auto bar = static_cast<std::size_t>((count * kBar + most - 1) / most);
    char line[80];
    std::snprintf(
        line, sizeof line, "%9llu - %-9llu %10llu ", static_cast<unsigned long long>(bounds.from),
        static_cast<unsigned long long>(bounds.to), static_cast<unsigned long long>(count));
    text += formatted("{}{}\n", line, std::string(bar, '#'));
  }
  return text;
}

}  // namespace trireme
