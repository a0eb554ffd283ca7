#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace trireme::text {

/// A bounded cache of pre-tokens and their ids: words repeat, and a lookup is much faster than
/// merging. Two direct-mapped tables, so a new entry replaces the one in its slot:
///   short   at most 15 bytes and 11 ids, both inside the slot, which is one cache line
///   long    up to kMaxBytes bytes; bytes and ids are in a ring buffer, and an entry is valid until
///           the ring buffer overwrites it
/// A lookup compares the whole pre-token, so the cache never changes results. Not thread-safe.
class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 255;
  static constexpr std::size_t kMaxShortBytes = 15;
  static constexpr std::size_t kMaxShortIds = 11;

  WordCache();

  /// Writes the ids of `word` (not empty) to `out` and returns their number; 0 if the cache does
  /// not have it. `out` must have space for one id per byte and at least kMaxShortIds ids, because
  /// the function may write more ids than it returns.
  std::size_t find(std::string_view word, std::uint32_t* out) const noexcept;

  /// Like find, without a branch for the length. kPadding bytes from the start of `word` must be
  /// readable.
  static constexpr std::size_t kPadding = 16;
  std::size_t find_padded(std::string_view word, std::uint32_t* out) const noexcept;

  /// Stores the ids of `word`, which was not found. Does nothing if it is too long.
  void insert(std::string_view word, std::span<const std::uint32_t> ids);

 private:
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high =
        0;  // the last bytes, and the length in the top byte; an empty slot has 0 in both members

    bool operator==(const Key&) const = default;
  };

  struct alignas(64) ShortSlot {
    Key key;
    std::uint32_t ids[kMaxShortIds] = {};
    std::uint32_t count = 0;
  };

  struct LongSlot {
    std::uint64_t hash = 0;
    std::uint64_t position = 0;  // ring buffer position without wrapping; never 0
    std::uint32_t bytes = 0;
    std::uint32_t count = 0;
  };

  static Key key_of(std::string_view word) noexcept;
  static Key key_of_padded(std::string_view word) noexcept;
  std::size_t find_short(const Key& key, std::uint32_t* out) const noexcept;
  static std::size_t short_slot(const Key& key) noexcept;
  std::size_t find_long(std::string_view word, std::uint32_t* out) const noexcept;
  void insert_long(std::string_view word, std::span<const std::uint32_t> ids);

  static constexpr int kShortSlotBits = 17;  // 8 MiB

  std::vector<ShortSlot> short_;
  std::vector<LongSlot> long_;
  std::vector<std::uint32_t> ring_;  // for each entry: ids, then bytes padded to words
  std::uint64_t end_ = 1;
};

// Inline, because nearly every word of a text calls these functions.

namespace detail {

template <class T>
T load_as(const char* p) noexcept {
  T value{};
  std::memcpy(&value, p, sizeof value);
  return value;
}

}  // namespace detail

inline WordCache::Key WordCache::key_of(std::string_view word) noexcept {
  // Overlapping loads inside the word instead of a copy of variable length.
  const char* const p = word.data();
  const std::size_t n = word.size();
  Key key{.high = std::uint64_t{n} << 56};
  if (n >= 8) {
    key.low = detail::load_as<std::uint64_t>(p);
    if (n > 8) key.high |= detail::load_as<std::uint64_t>(p + n - 8) >> (8 * (16 - n));
  } else if (n >= 4) {
    key.low = detail::load_as<std::uint32_t>(p) |
              std::uint64_t{detail::load_as<std::uint32_t>(p + n - 4)} << (8 * (n - 4));
  } else {
    for (const std::size_t i : {std::size_t{0}, n / 2, n - 1})
      key.low |= std::uint64_t{detail::load_as<std::uint8_t>(p + i)} << (8 * i);
  }
  return key;
}

inline std::size_t WordCache::short_slot(const Key& key) noexcept {
  const std::uint64_t mixed = (key.low ^ key.high * 0xC2B2AE3D27D4EB4FULL) * 0x9E3779B97F4A7C15ULL;
  return mixed >> (64 - kShortSlotBits);
}

inline WordCache::Key WordCache::key_of_padded(std::string_view word) noexcept {
  // The masks of both members are 8 bytes each from this table, at an offset that depends on the
  // length.
  static constexpr std::array<std::uint8_t, 32> kOnes = [] {
    std::array<std::uint8_t, 32> bytes{};
    for (std::size_t i = 0; i < 16; ++i) bytes[i] = 0xFF;
    return bytes;
  }();
  const std::size_t n = word.size();
  const auto* const masks = reinterpret_cast<const char*>(kOnes.data()) + 16 - n;
  return {
      .low = detail::load_as<std::uint64_t>(word.data()) & detail::load_as<std::uint64_t>(masks),
      .high = (detail::load_as<std::uint64_t>(word.data() + 8) &
               detail::load_as<std::uint64_t>(masks + 8)) |
              std::uint64_t{n} << 56};
}

inline std::size_t WordCache::find_short(const Key& key, std::uint32_t* out) const noexcept {
  const ShortSlot& slot = short_[short_slot(key)];
  if (!(slot.key == key)) return 0;
  constexpr std::size_t kMost = 4;  // nearly all words have no more ids; faster than a loop
  std::memcpy(out, slot.ids, kMost * sizeof *out);
  if (slot.count > kMost)
    std::memcpy(out + kMost, slot.ids + kMost, sizeof slot.ids - kMost * sizeof *out);
  return slot.count;
}

inline std::size_t WordCache::find(std::string_view word, std::uint32_t* out) const noexcept {
  return word.size() > kMaxShortBytes ? find_long(word, out) : find_short(key_of(word), out);
}

inline std::size_t WordCache::find_padded(std::string_view word,
                                          std::uint32_t* out) const noexcept {
  return word.size() > kMaxShortBytes ? find_long(word, out) : find_short(key_of_padded(word), out);
}

}  // namespace trireme::text
