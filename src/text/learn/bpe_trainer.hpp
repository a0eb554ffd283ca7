#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/learn/word_counter.hpp"

namespace trireme {

/// A token that exists before any text is seen. Not special: added, but kept by
/// decode(skip_special_tokens).
struct ReservedToken {
  std::string content;
  bool special = true;
};

/// The 36 tokens of MiniMind-3 in order of their ids; 0 to 20 are special, 21 to
/// 35 (tools, thinking, buffers) are not. Source: github.com/jingyaogong/minimind,
/// README and tokenizer of version 3.
std::vector<ReservedToken> minimind_reserved_tokens();

struct BpeTrainOptions {
  std::uint32_t vocab_size = 6400;  // reserved tokens and the alphabet counted
  std::vector<ReservedToken> reserved = minimind_reserved_tokens();  // ids from 0, in this order
  std::uint64_t min_frequency = 0;  // a pair seen less often ends the training
  std::optional<std::uint32_t> max_token_length =
      std::nullopt;       // new tokens are shorter than this many bytes
  bool all_bytes = true;  // all 256 bytes get a token; else those that occur
  // Characters that get a token: the most frequent, bytes of all_bytes first. Words are learned
  // without the others. Equal counts: the smaller code point (Hugging Face leaves that to chance).
  std::optional<std::uint32_t> limit_alphabet = std::nullopt;
  // Roles for tokenizer_config.json: each a reserved token, or empty for none.
  std::string bos_token = "<|im_start|>";
  std::string eos_token = "<|im_end|>";
  std::string pad_token = "<|endoftext|>";
  std::string unk_token = "<|endoftext|>";
  std::uint64_t model_max_length = 131072;  // tokens; a hint for users of the files
};

/// What a training came to.
struct BpeTrainReport {
  std::uint64_t vocab_size = 0;  // tokens: fewer or more than asked for, see train_bpe
  std::uint64_t merges = 0;
  std::uint64_t max_pair_count = 0;  // the largest count of a pair
};

/// Pair counts above this wrap around in Hugging Face's trainer, and its merges go wrong.
inline constexpr std::uint64_t kMaxPairCountOfHuggingFace = 0x7FFFFFFF;

/// What train_bpe throws for options that cannot work, before the hours of counting: Error(usage)
/// if a reserved token is empty, too long, no UTF-8 or twice there, or a role is not reserved.
void check_train_options(const BpeTrainOptions& options);

/// Tokens that come out of any text: the reserved ones and, with all_bytes and no limit, the bytes.
std::uint64_t fewest_tokens(const BpeTrainOptions& options);

/// Learns merges and returns tokenizer.json and tokenizer_config.json by file name. The first
/// equals, byte for byte, what Hugging Face `tokenizers` 0.23 saves for the same training with pair
/// counts below 2^31 (ours are 64 bits). Fewer tokens than asked for come out if the text has no
/// more pairs; more, and no merge, if the reserved tokens and the alphabet alone are more.
///   time    as MergeLearner
///   memory  as MergeLearner, beside `counts`
/// Throws as check_train_options.
/// Source: Sennrich et al., ACL 2016; the rules (of two pairs with equal counts the one with the
/// smaller left id, then the smaller right id; what min_frequency, max_token_length and
/// limit_alphabet mean) are those of huggingface/tokenizers 0.23, `models/bpe/trainer.rs`.
std::map<std::string, std::string> train_bpe(const WordCounter& counts,
                                             const BpeTrainOptions& options = {},
                                             BpeTrainReport* report = nullptr);

}  // namespace trireme
