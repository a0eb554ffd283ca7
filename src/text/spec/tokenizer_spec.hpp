#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/split/splitter.hpp"

/// What a tokenizer.json says, checked and reduced to what changes ids or text. Anything that is
/// not supported is refused by name: an approximation would silently train on other tokens.
namespace trireme {

struct AddedToken {
  std::string content;
  std::uint32_t id = 0;
  bool single_word = false;  // only where no word character touches it
  bool lstrip = false;       // takes white space before it along
  bool rstrip = false;       // and after it
  bool normalized = true;    // found after the others, in normalized text
  bool special = false;      // dropped by decode(skip_special_tokens)
};

struct MergeRule {
  std::uint32_t left = 0;
  std::uint32_t right = 0;
  std::uint32_t result = 0;
};

struct TokenizerSpec {
  std::unordered_map<std::string, std::uint32_t> vocab;  // model tokens in the byte alphabet
  std::vector<MergeRule> merges;                         // rank = position
  bool ignore_merges = false;             // a whole piece that is a token is not merged
  std::vector<AddedToken> added;          // in file order, one per content
  bool nfc = false;                       // text becomes NFC once raw added tokens are cut out
  std::vector<SplitStep> steps;           // how text between added tokens is cut into pieces
  std::vector<std::uint32_t> prefix_ids;  // what the post-processor puts around a text
  std::vector<std::uint32_t> suffix_ids;
  std::uint32_t vocab_size = 0;  // highest id + 1
};

/// Limits against hostile files.
inline constexpr std::uint32_t kMaxTokenId = (1U << 22) - 1;
inline constexpr std::size_t kMaxAddedTokenBytes = 1024;
inline constexpr std::size_t kMaxTokenizerFileBytes = std::size_t{64} << 20;

/// Ids of added tokens follow Hugging Face's rule (the model's id if it has the content, else the
/// next free one); a file whose own ids disagree is refused. `where` names the file in errors.
/// Throws Error(data): broken JSON, an unsupported part, a byte without token, a merge outside the
/// vocabulary. Source: huggingface/tokenizers 0.23, `added_vocabulary.rs` and `models/bpe`.
TokenizerSpec parse_tokenizer_json(std::string_view text, std::string_view where);

}  // namespace trireme
