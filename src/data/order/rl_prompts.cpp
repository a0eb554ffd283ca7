#include "data/order/rl_prompts.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"

namespace trireme::data {
namespace {

/// Returns the number of prompts, or throws.
std::uint64_t num_prompts(const TokenSet& set) {
  constexpr std::array<std::string_view, 1> kKinds{"rl"};
  require_kind(set, kKinds, cat("--data ", set.directory().string()));
  if (set.num_documents() == 0)
    fail(ErrorKind::data, "{} has no prompts. Pack records with at least one valid prompt.",
         set.directory().string());
  return set.num_documents();
}

[[noreturn]] void fail_invalid(const TokenShard& shard, std::uint64_t document) {
  fail(ErrorKind::data, "{}: {} is invalid at document {}", shard.path().string(),
       schema::kDocOffset, document);
}

}  // namespace

RlPrompts::RlPrompts(const TokenSet& set, std::uint64_t seed, bool shuffle)
    : set_(set), order_(num_prompts(set), OrderConfig{.seed = seed, .shuffle = shuffle}) {
  std::uint64_t end = 0;
  for (const ShardEntry& shard : set.manifest().shards)
    ends_.push_back(end += shard.counts.documents);
}

RlPrompts::Prompt RlPrompts::at(std::uint64_t index) const {
  Prompt prompt;
  prompt.document = order_.locate(index).position;
  const auto after = std::upper_bound(ends_.begin(), ends_.end(), prompt.document);
  const auto number = static_cast<std::size_t>(after - ends_.begin());
  const TokenShard& shard = set_.shard(number);
  const std::uint64_t doc = prompt.document - (number == 0 ? 0 : ends_[number - 1]);
  const std::uint64_t begin = shard.document_begin(doc);
  const std::uint64_t end = shard.document_begin(doc + 1);
  if (end < begin || end > shard.num_tokens()) fail_invalid(shard, doc);
  std::vector<std::int64_t> ids(end - begin);
  shard.read_tokens(begin, ids);
  prompt.ids.assign(ids.begin(), ids.end());
  prompt.record = shard.text(shard.contents().texts.front(), doc);
  return prompt;
}

LongPrompts long_prompts(const TokenSet& set, DocumentRange range, std::int64_t limit) {
  LongPrompts found;
  std::uint64_t document = 0;
  for (std::size_t number = 0; number < set.manifest().shards.size(); ++number) {
    const std::uint64_t first = document;
    document += set.manifest().shards[number].counts.documents;
    if (document <= range.begin || first >= range.end) continue;
    const TokenShard& shard = set.shard(number);
    const std::vector<std::uint64_t> offsets = shard.document_offsets();
    for (std::uint64_t at = std::max(first, range.begin); at < std::min(document, range.end);
         ++at) {
      const std::uint64_t begin = offsets[at - first];
      const std::uint64_t end = offsets[at - first + 1];
      if (end < begin || end > shard.num_tokens()) fail_invalid(shard, at - first);
      if (static_cast<std::int64_t>(end - begin) <= limit) continue;
      ++found.count;
      if (end - begin > found.longest_tokens) {
        found.longest = at;
        found.longest_tokens = end - begin;
      }
    }
  }
  return found;
}

}  // namespace trireme::data
