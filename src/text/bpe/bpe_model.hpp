#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/spec/tokenizer_spec.hpp"

namespace trireme::text {

/// Buffers of one encoding thread for long pre-tokens.
struct BpeScratch {
  std::vector<std::uint32_t> ids;
  std::vector<std::uint32_t> ranks;
  std::vector<std::uint32_t> previous;
  std::vector<std::uint32_t> next;
  std::vector<std::uint64_t> heap;
};

/// Applies the merges of a BPE model to one pre-token: lowest rank first, then leftmost.
/// Immutable after construction; each thread needs its own scratch.
///   time    O(n log n) for n bytes; short pre-tokens use a linear scan, which is faster for them
/// Source: Sennrich et al., ACL 2016; huggingface/tokenizers 0.23, `models/bpe/word.rs`.
class BpeModel {
 public:
  explicit BpeModel(const TokenizerSpec& spec);

  static constexpr std::size_t kShortWord = 32;

  /// Writes the ids of `word` (raw bytes, not empty, fewer than 2^32) to `out`, which must have
  /// space for one id per byte. Returns the number of ids.
  std::size_t encode_word(std::string_view word, BpeScratch& scratch, std::uint32_t* out) const;

  /// Merges ids instead of the bytes of a word: `scratch.ids` holds the ids of the symbols, fewer
  /// than 2^32. Writes the merged ids to `out`, which may be the data of `scratch.ids`, and returns
  /// their number. For a model of SentencePiece, only this function and whole() may be used.
  std::size_t merge_ids(BpeScratch& scratch, std::uint32_t* out) const;

  /// Like encode_word, but as if ignore_merges were false.
  std::size_t merge(std::string_view word, BpeScratch& scratch, std::uint32_t* out) const;

  /// Returns true with ignore_merges: a pre-token that equals a token is not merged.
  [[nodiscard]] bool has_whole() const noexcept { return ignore_merges_; }

  /// Returns the token that equals `word` if ignore_merges is set; none otherwise.
  [[nodiscard]] std::optional<std::uint32_t> whole(std::string_view word) const;

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

  struct WordHash {
    using is_transparent = void;

    std::size_t operator()(std::string_view word) const noexcept {
      return std::hash<std::string_view>()(word);
    }
  };

  [[nodiscard]] const Merge& find(std::uint32_t left, std::uint32_t right) const noexcept;
  [[nodiscard]] std::size_t slot_of(std::uint64_t key, std::uint64_t hash) const noexcept;
  [[nodiscard]] const ByteMerge& byte_merge(char left, char right) const noexcept;
  std::size_t merge_short(std::string_view word, std::uint32_t* out) const;
  std::size_t merge_long(std::string_view word, BpeScratch& scratch, std::uint32_t* out) const;
  std::size_t merge_ranked(BpeScratch& scratch, std::uint32_t* out) const;
  void set_bytes(const TokenizerSpec& spec);

  std::array<std::uint32_t, 256> byte_id_{};
  std::vector<ByteMerge> byte_merges_;  // [256 * 256]
  std::vector<Merge> merges_;           // open addressing; an empty slot ends a search
  std::uint64_t mask_ = 0;
  // Bit filter: most pairs do not merge, and the filter fits into the CPU cache.
  std::vector<std::uint64_t> filter_;
  int filter_shift_ = 0;
  bool ignore_merges_ = false;
  // tokens by their bytes, only with ignore_merges
  std::unordered_map<std::string, std::uint32_t, WordHash, std::equal_to<>> whole_;
};

/// Finds positions in a pre-token that no merge can cross. Both sides can be encoded separately and
/// found in the word cache. A Chinese clause is one pre-token and nearly always new, but most pairs
/// of neighbouring characters occur in no token.
///
/// The constructor stores, for each token that merges produce, the pairs of neighbouring characters
/// inside it, including incomplete characters at its ends. The pairs are in a bit filter: a false
/// hit only costs time. Immutable after construction and thread-safe.
class SplitPoints {
 public:
  explicit SplitPoints(const TokenizerSpec& spec);

  /// Returns the length of `word` (valid UTF-8, not empty) up to its first safe split point.
  [[nodiscard]] std::size_t part_length(std::string_view word) const noexcept;

 private:
  void add_token(std::string_view bytes);
  void set(std::string_view left, std::string_view right);
  [[nodiscard]] bool joined(const char* left, std::size_t left_size, const char* right,
                            std::size_t right_size) const noexcept;
  [[nodiscard]] std::uint64_t bit_of(std::uint64_t left, std::uint64_t right) const noexcept;

  std::vector<std::uint64_t> bits_;
  int shift_ = 0;
  // bit [left bytes][right bytes]: a stored pair has these lengths
  std::uint32_t shapes_ = 0;
};

}  // namespace trireme::text
