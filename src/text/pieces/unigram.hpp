#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/spec/tokenizer_spec.hpp"

namespace trireme::text {

/// The buffers of one thread for Unigram.
struct UnigramScratch {
  /// The best tokens for the bytes before a position.
  struct Best {
    double score = 0;
    std::uint32_t id = 0;
    std::uint32_t begin = 0;  // start of the last token
    bool is_set = false;
  };

  std::vector<Best> best;
  std::vector<std::uint32_t> ids;  // the result
};

/// Finds the tokens of a text with the highest sum of scores (Viterbi). A character that begins no
/// token counts as unknown, with the lowest score minus 10. Adjacent unknown characters are one
/// token. Immutable after construction and thread-safe.
/// Source: Kudo, ACL 2018; huggingface/tokenizers 0.23, `models/unigram/model.rs`.
class Unigram {
 public:
  explicit Unigram(const TokenizerSpec& spec);

  /// Sets `scratch.ids` to the ids of `text` (valid UTF-8). `byte_ids`: the token of each byte,
  /// which replaces an unknown token if all its bytes have one.
  void encode(std::string_view text, const std::array<std::optional<std::uint32_t>, 256>& byte_ids,
              UnigramScratch& scratch) const;

 private:
  static constexpr std::uint32_t kNoToken = 0xFFFFFFFF;

  void insert(std::string_view token, std::uint32_t id);
  void find_best(std::string_view text, std::vector<UnigramScratch::Best>& best) const;
  [[nodiscard]] std::uint32_t exact(std::string_view text) const;

  // A trie over bytes: key = node << 8 | byte.
  std::unordered_map<std::uint64_t, std::uint32_t> children_;
  std::vector<std::uint32_t> tokens_{kNoToken};  // by node: the token that ends there
  std::vector<double> scores_;
  double unknown_score_ = 0;
  std::uint32_t unk_id_ = 0;
};

}  // namespace trireme::text
