#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::text {

/// Counts byte strings. A known word of at most 15 bytes is inside its slot, so a lookup needs one
/// cache line. Longer words are in an arena.
///   memory  24 bytes for each slot, at most 3/5 of them used, and the bytes of long words
/// A word has 1 to 2^32-1 bytes. Not thread-safe.
class WordTable {
 public:
  WordTable();

  /// Adds `count` occurrences of `word`. The update may be delayed by some calls: call flush()
  /// before reading.
  void add(std::string_view word, std::uint64_t count);

  /// Applies delayed updates of add().
  void flush();

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  /// Calls visit(word, count) for every word, in no particular order. Views are valid until it
  /// returns.
  template <class Visit>
  void for_each(Visit&& visit) const {
    char inline_bytes[16];
    for (const Slot& slot : slots_) {
      if (slot.high == 0) continue;
      visit(word_of(slot, inline_bytes), slot.count);
    }
  }

  /// Like for_each, but words with larger counts come first.
  template <class Visit>
  void for_each_by_count(Visit&& visit) const {
    char inline_bytes[16];
    for (const std::size_t at : order_by_count())
      visit(word_of(slots_[at], inline_bytes), slots_[at].count);
  }

 private:
  static constexpr std::size_t kMaxInline = 15;
  static constexpr std::uint64_t kLong = 0xFF;  // value in the top byte of `high`
  static constexpr std::size_t kAhead = 16;     // adds between prefetch and use of a slot

  /// A short word: its bytes, with the length (1 to 15) in the top byte of `high`. A long word: a
  /// hash, and its offset in the arena below kLong. Both 0: an empty slot.
  struct Slot {
    std::uint64_t low = 0;
    std::uint64_t high = 0;
    std::uint64_t count = 0;
  };

  struct Pending {
    Slot key;  // a short word
    std::uint64_t hash = 0;
  };

  static Slot short_key(std::string_view word) noexcept;

  [[nodiscard]] static std::uint64_t hash_of(const Slot& slot) noexcept {
    // `low` of a long word is already a hash, and `high` is only its offset.
    const std::uint64_t high = slot.high >> 56 == kLong ? 0 : slot.high;
    const std::uint64_t mixed = (slot.low ^ high * 0xC2B2AE3D27D4EB4FULL) * 0x9E3779B97F4A7C15ULL;
    return mixed ^ mixed >> 32;
  }

  [[nodiscard]] std::string_view word_of(const Slot& slot, char* inline_bytes) const noexcept;
  [[nodiscard]] std::vector<std::size_t> order_by_count() const;
  void apply(const Pending& pending);
  void add_long(std::string_view word, std::uint64_t count);
  void grow();

  std::vector<Slot> slots_;
  std::size_t size_ = 0;
  std::uint64_t bytes_ = 0;
  std::string arena_;  // each long word: its length in 4 bytes, then its bytes
  Pending pending_[kAhead];
  std::size_t at_ = 0;  // index of the oldest entry in pending_
};

}  // namespace trireme::text
