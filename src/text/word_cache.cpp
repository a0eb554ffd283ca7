#include "text/word_cache.hpp"

#include <algorithm>
#include <cstring>

#include "core/hash.hpp"

namespace trireme {
namespace {

constexpr std::size_t kShortSlots = std::size_t{1} << 16;  // 2 MiB
constexpr std::size_t kLongSlots = std::size_t{1} << 16;   // 1.5 MiB
constexpr std::size_t kRingWords = std::size_t{1} << 21;   // 8 MiB
constexpr std::size_t kMaxShortBytes = 15;

template <class T>
T load(const char* p) noexcept {
  T value{};
  std::memcpy(&value, p, sizeof value);
  return value;
}

std::size_t words_of(std::size_t bytes) {
  return (bytes + 3) / 4;
}

}  // namespace

WordCache::WordCache() : short_(kShortSlots), long_(kLongSlots), ring_(kRingWords) {}

WordCache::Key WordCache::key_of(std::string_view piece) noexcept {
  // Loads that overlap inside the piece instead of a copy of variable length; equal bytes overlap
  // equally.
  const char* const p = piece.data();
  const std::size_t n = piece.size();
  Key key{.high = std::uint64_t{n} << 56};
  if (n >= 8) {
    key.low = load<std::uint64_t>(p);
    if (n > 8) key.high |= load<std::uint64_t>(p + n - 8) >> (8 * (16 - n));
  } else if (n >= 4) {
    key.low = load<std::uint32_t>(p) | std::uint64_t{load<std::uint32_t>(p + n - 4)}
                                           << (8 * (n - 4));
  } else {
    for (const std::size_t i : {std::size_t{0}, n / 2, n - 1})
      key.low |= std::uint64_t{load<std::uint8_t>(p + i)} << (8 * i);
  }
  return key;
}

std::size_t WordCache::short_slot(const Key& key) noexcept {
  const std::uint64_t mixed = (key.low ^ key.high * 0xC2B2AE3D27D4EB4FULL) * 0x9E3779B97F4A7C15ULL;
  return mixed >> 48;
}

static_assert(kShortSlots == std::size_t{1} << 16, "short_slot takes 16 bits");

bool WordCache::find(std::string_view piece, std::vector<std::uint32_t>& ids) const {
  if (piece.size() > kMaxShortBytes) return find_long(piece, ids);
  const Key key = key_of(piece);
  const ShortSlot& slot = short_[short_slot(key)];
  if (!(slot.key == key)) return find_long(piece, ids);
  ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
  return true;
}

void WordCache::insert(std::string_view piece, std::span<const std::uint32_t> ids) {
  if (piece.size() > kMaxShortBytes || ids.size() > kMaxShortIds) return insert_long(piece, ids);
  const Key key = key_of(piece);
  ShortSlot& slot = short_[short_slot(key)];
  slot.key = key;
  slot.count = static_cast<std::uint32_t>(ids.size());
  std::copy(ids.begin(), ids.end(), slot.ids);
}

bool WordCache::find_long(std::string_view piece, std::vector<std::uint32_t>& ids) const {
  if (piece.size() > kMaxBytes) return false;
  const std::uint64_t hash = xxh3_64(piece);
  const LongSlot& slot = long_[hash % kLongSlots];
  if (slot.hash != hash || slot.bytes != piece.size()) return false;
  if (slot.position == 0 || end_ - slot.position > kRingWords) return false;
  const std::uint32_t* const entry = ring_.data() + slot.position % kRingWords;
  if (std::memcmp(entry + slot.count, piece.data(), piece.size()) != 0) return false;
  ids.insert(ids.end(), entry, entry + slot.count);
  return true;
}

void WordCache::insert_long(std::string_view piece, std::span<const std::uint32_t> ids) {
  if (piece.size() > kMaxBytes || piece.empty()) return;
  const std::size_t words = ids.size() + words_of(piece.size());
  if (end_ % kRingWords + words > kRingWords)
    end_ += kRingWords - end_ % kRingWords;  // entries do not wrap
  std::uint32_t* const entry = ring_.data() + end_ % kRingWords;
  std::copy(ids.begin(), ids.end(), entry);
  std::memcpy(entry + ids.size(), piece.data(), piece.size());
  const std::uint64_t hash = xxh3_64(piece);
  long_[hash % kLongSlots] = {.hash = hash,
                              .position = end_,
                              .bytes = static_cast<std::uint32_t>(piece.size()),
                              .count = static_cast<std::uint32_t>(ids.size())};
  end_ += words;
}

}  // namespace trireme
