#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/spec/tokenizer_spec.hpp"

namespace trireme {

/// Buffers of one encoding thread for long pre-tokens.
struct BpeScratch {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint32_t> ranks;
  std::vector<std::uint32_t> previous;
  std::vector<std::uint32_t> next;
  std::vector<std::uint64_t> heap;
};

/// Applies the merges of a byte-level BPE model to one pre-token: lowest rank first, then leftmost.
/// Immutable after construction; each thread needs its own scratch.
///   time    O(n log n) for n bytes; short pre-tokens use a linear scan, which is faster for them
/// Source: Sennrich et al., ACL 2016; huggingface/tokenizers 0.23, `models/bpe/word.rs`.
class BpeModel {
 public:
  explicit BpeModel(const TokenizerSpec& spec);

  static constexpr std::size_t kShortPiece = 32;

  /// Writes the ids of `piece` (raw bytes, not empty, fewer than 2^32) to `out`, which must have
  /// space for one id per byte. Returns the number of ids.
  std::size_t encode_piece(std::string_view piece, BpeScratch& scratch, std::uint32_t* out) const;

  /// Like encode_piece, but as if ignore_merges were false.
  std::size_t merge(std::string_view piece, BpeScratch& scratch, std::uint32_t* out) const;

  /// Returns true with ignore_merges: a pre-token that equals a token is not merged.
  [[nodiscard]] bool has_whole() const noexcept { return ignore_merges_; }

  /// Returns the token that equals `piece` if ignore_merges is set; none otherwise.
  [[nodiscard]] std::optional<std::uint32_t> whole(std::string_view piece) const;

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  struct Merge {
    std::uint64_t pair = ~std::uint64_t{0};  // left << 32 | right; no token has id 2^32-1
    std::uint32_t rank = kNone;
    std::uint32_t result = kNone;
  };

  struct ByteMerge {
    std::int32_t rank = -1;  // -1: the two bytes do not merge
    std::uint32_t result = 0;
  };

  struct PieceHash {
    using is_transparent = void;

    std::size_t operator()(std::string_view piece) const noexcept {
      return std::hash<std::string_view>()(piece);
    }
  };

  [[nodiscard]] const Merge& find(std::uint32_t left, std::uint32_t right) const noexcept;
  [[nodiscard]] std::size_t slot_of(std::uint64_t key, std::uint64_t hash) const noexcept;
  [[nodiscard]] const ByteMerge& byte_merge(char left, char right) const noexcept;
  std::size_t merge_short(std::string_view piece, std::uint32_t* out) const;
  std::size_t merge_long(std::string_view piece, BpeScratch& scratch, std::uint32_t* out) const;

  std::array<std::uint32_t, 256> byte_id_{};
  std::vector<ByteMerge> byte_merges_;  // [256 * 256]
  std::vector<Merge> merges_;           // open addressing; an empty slot ends a search
  std::uint64_t mask_ = 0;
  // Bit filter: most pairs do not merge, and the filter fits into the CPU cache.
  std::vector<std::uint64_t> filter_;
  int filter_shift_ = 0;
  bool ignore_merges_ = false;
  // tokens by raw bytes, only with ignore_merges
  std::unordered_map<std::string, std::uint32_t, PieceHash, std::equal_to<>> whole_;
};

}  // namespace trireme
