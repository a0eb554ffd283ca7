#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer_spec.hpp"

namespace trireme {

/// Work space of one encoding thread for long pieces, reused from piece to piece.
struct BpeScratch {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint32_t> ranks;
  std::vector<std::uint32_t> previous;
  std::vector<std::uint32_t> next;
  std::vector<std::uint64_t> heap;
};

/// The merges of a byte-level BPE model, applied to one piece: lowest rank first, then leftmost.
/// Immutable after construction; safe for any number of threads, each with its own scratch.
///   time    O(n log n) for a piece of n bytes; short pieces take a plain scan, which is
///   faster there
/// Source: Sennrich et al., ACL 2016; huggingface/tokenizers 0.23, `models/bpe/word.rs`.
class BpeModel {
 public:
  explicit BpeModel(const TokenizerSpec& spec);

  static constexpr std::size_t kShortPiece = 32;

  /// Writes the ids of `piece` (raw bytes, not empty, fewer than 2^32) to `out`, which has room for
  /// one id a byte. Returns how many there are.
  std::size_t encode_piece(std::string_view piece, BpeScratch& scratch, std::uint32_t* out) const;

 private:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;
  static constexpr std::int32_t kNoRank = -1;

  struct Merge {
    std::uint64_t pair = ~std::uint64_t{0};  // left << 32 | right; no token has id 2^32-1
    std::uint32_t rank = kNone;
    std::uint32_t result = kNone;
  };

  [[nodiscard]] const Merge& find(std::uint32_t left, std::uint32_t right) const noexcept;
  [[nodiscard]] Merge& slot(std::uint32_t left, std::uint32_t right) noexcept;
  [[nodiscard]] std::int32_t byte_rank(char left, char right) const noexcept;
  std::size_t merge_short(std::string_view piece, std::uint32_t* out) const;
  std::size_t merge_long(std::string_view piece, BpeScratch& scratch, std::uint32_t* out) const;

  std::array<std::uint32_t, 256> byte_id_{};
  // [256 * 256] rank of two bytes, kNoRank if they do not merge
  std::vector<std::int32_t> byte_ranks_;
  std::vector<Merge> merges_;  // open addressing; an empty slot ends a search
  std::uint64_t mask_ = 0;
  bool ignore_merges_ = false;
  // raw bytes of tokens, only with ignore_merges
  std::unordered_map<std::string, std::uint32_t> whole_;
};

}  // namespace trireme
