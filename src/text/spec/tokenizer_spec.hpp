#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/unicode/normalizer.hpp"
#include "text/spec/piece_spec.hpp"
#include "text/split/splitter.hpp"

/// The contents of tokenizer.json that affect ids or text, checked. Unsupported parts are refused
/// by name, because an approximation would silently produce other tokens.
namespace trireme::text {

struct AddedToken {
  std::string content;
  std::uint32_t id = 0;
  bool single_word = false;  // matches only if no word character is adjacent
  bool lstrip = false;       // includes the white space before it
  bool rstrip = false;       // includes the white space after it
  bool normalized = true;    // matched after the others, in normalized text
  bool special = false;      // removed by decode(skip_special_tokens)
};

struct MergeRule {
  std::uint32_t left = 0;
  std::uint32_t right = 0;
  std::uint32_t result = 0;
};

struct TokenizerSpec {
  std::unordered_map<std::string, std::uint32_t>
      vocab;                              // model tokens, in the byte alphabet (without `pieces`)
  std::vector<MergeRule> merges;          // by rank
  bool ignore_merges = false;             // a pre-token that equals a token is not merged
  std::vector<AddedToken> added;          // file order, one entry per content
  Normalizer normalizer;                  // applied after raw added tokens are cut out
  std::vector<SplitStep> steps;           // pre-tokenizer: splits the text between added tokens
  std::optional<PieceSpec> pieces;        // set for a model of SentencePiece; `steps` is then empty
  std::vector<std::uint32_t> prefix_ids;  // added around a text by the post-processor
  std::vector<std::uint32_t> suffix_ids;
  std::uint32_t vocab_size = 0;  // highest id + 1
};

/// Limits against malicious files.
inline constexpr std::uint32_t kMaxTokenId = (1U << 22) - 1;
inline constexpr std::size_t kMaxAddedTokenBytes = 1024;
inline constexpr std::size_t kMaxTokenizerFileBytes = std::size_t{64} << 20;

/// Parses and checks tokenizer.json. Ids of added tokens follow Hugging Face's rule (the id in the
/// model if it has the content, otherwise the next free one); a file with other ids is refused.
/// `where` names the file in errors. Throws Error(data) for invalid JSON, an unsupported part, a
/// byte without token, or a merge outside the vocabulary. Source: huggingface/tokenizers 0.23,
/// `added_vocabulary.rs` and `models/bpe`.
TokenizerSpec parse_tokenizer_json(std::string_view text, std::string_view where);

}  // namespace trireme::text
