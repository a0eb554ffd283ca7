#include "text/bpe/word_cache.hpp"

#include <algorithm>
#include <cstring>

#include "core/hash/xxh3.hpp"

namespace trireme::text {
namespace {

constexpr std::size_t kLongSlots = std::size_t{1} << 16;  // 1.5 MiB
constexpr std::size_t kRingWords = std::size_t{1} << 21;  // 8 MiB

std::size_t words_of(std::size_t bytes) {
  return (bytes + 3) / 4;
}

}  // namespace

WordCache::WordCache()
    : short_(std::size_t{1} << kShortSlotBits), long_(kLongSlots), ring_(kRingWords) {}

void WordCache::insert(std::string_view word, std::span<const std::uint32_t> ids) {
  if (word.size() > kMaxShortBytes) return insert_long(word, ids);
  if (ids.size() > kMaxShortIds) return;  // rare: few characters per token
  const Key key = key_of(word);
  ShortSlot& slot = short_[short_slot(key)];
  slot.key = key;
  slot.count = static_cast<std::uint32_t>(ids.size());
  std::copy(ids.begin(), ids.end(), slot.ids);
}

std::size_t WordCache::find_long(std::string_view word, std::uint32_t* out) const noexcept {
  if (word.size() > kMaxBytes) return 0;
  const std::uint64_t hash = xxh3_64(word);
  const LongSlot& slot = long_[hash % kLongSlots];
  if (slot.hash != hash || slot.bytes != word.size()) return 0;
  if (slot.position == 0 || end_ - slot.position > kRingWords) return 0;
  const std::uint32_t* const entry = ring_.data() + slot.position % kRingWords;
  if (std::memcmp(entry + slot.count, word.data(), word.size()) != 0) return 0;
  std::copy(entry, entry + slot.count, out);
  return slot.count;
}

void WordCache::insert_long(std::string_view word, std::span<const std::uint32_t> ids) {
  if (word.size() > kMaxBytes || word.empty()) return;
  const std::size_t words = ids.size() + words_of(word.size());
  if (end_ % kRingWords + words > kRingWords)
    end_ += kRingWords - end_ % kRingWords;  // entries do not wrap around
  std::uint32_t* const entry = ring_.data() + end_ % kRingWords;
  std::copy(ids.begin(), ids.end(), entry);
  std::memcpy(entry + ids.size(), word.data(), word.size());
  const std::uint64_t hash = xxh3_64(word);
  long_[hash % kLongSlots] = {.hash = hash,
                              .position = end_,
                              .bytes = static_cast<std::uint32_t>(word.size()),
                              .count = static_cast<std::uint32_t>(ids.size())};
  end_ += words;
}

}  // namespace trireme::text
