#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace trireme {

/// Ids of pieces seen before, bounded in memory: words repeat, and a look-up is far cheaper than
/// merging. Two direct-mapped tables, so a new piece replaces the one it collides with and nothing
/// ever grows:
///   short   pieces of at most 15 bytes and 3 ids, both inside the slot
///   long    up to kMaxBytes bytes; bytes and ids in a ring, a slot is valid until the ring has
///   gone past it
/// One thread at a time. Never changes results: the whole piece is compared.
class WordCache {
 public:
  static constexpr std::size_t kMaxBytes = 255;

  WordCache();

  /// Appends the ids of `piece` and returns true, or returns false if it is not here.
  bool find(std::string_view piece, std::vector<std::uint32_t>& ids) const;

  /// Keeps the ids of `piece`, which was not found; no effect on pieces too long to keep.
  void insert(std::string_view piece, std::span<const std::uint32_t> ids);

 private:
  struct Key {
    std::uint64_t low = 0;
    std::uint64_t high =
        0;  // last bytes, and the length in the top byte; 0 in both for an empty slot

    bool operator==(const Key&) const = default;
  };

  struct ShortSlot {
    Key key;
    std::uint32_t count = 0;
    std::uint32_t ids[3] = {};
  };

  struct LongSlot {
    std::uint64_t hash = 0;
    std::uint64_t position = 0;  // in the ring, counted without wrapping; 0 is never used
    std::uint32_t bytes = 0;
    std::uint32_t count = 0;
  };

  static constexpr std::size_t kMaxShortIds = 3;

  static Key key_of(std::string_view piece) noexcept;
  static std::size_t short_slot(const Key& key) noexcept;
  bool find_long(std::string_view piece, std::vector<std::uint32_t>& ids) const;
  void insert_long(std::string_view piece, std::span<const std::uint32_t> ids);

  std::vector<ShortSlot> short_;
  std::vector<LongSlot> long_;
  std::vector<std::uint32_t> ring_;  // for each entry: ids, then bytes padded to words
  std::uint64_t end_ = 1;
};

}  // namespace trireme
