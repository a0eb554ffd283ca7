#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "text/learn/word_counter.hpp"

namespace trireme::text {

/// A token that exists before training. If it is not special, decode(skip_special_tokens) keeps it.
struct ReservedToken {
  std::string content;
  bool special = true;
};

/// Returns the 36 tokens of MiniMind-3 in order of their ids: 0 to 20 are special, 21 to 35 (tools,
/// thinking, buffers) are not. Source: github.com/jingyaogong/minimind, README and tokenizer of
/// version 3.
std::vector<ReservedToken> minimind_reserved_tokens();

struct BpeTrainOptions {
  std::uint32_t vocab_size = 6400;  // including reserved tokens and the alphabet
  std::vector<ReservedToken> reserved = minimind_reserved_tokens();  // ids from 0, in this order
  std::uint64_t min_frequency = 0;  // training ends at a pair with a smaller count
  std::optional<std::uint32_t> max_token_length =
      std::nullopt;       // new tokens are shorter than this, in bytes
  bool all_bytes = true;  // all 256 bytes get a token; otherwise only those that occur
  // Number of characters that get a token: the most frequent ones, bytes of all_bytes first. Words
  // are learned without the others. Of equal counts, the smaller code point wins (Hugging Face's
  // choice is arbitrary).
  std::optional<std::uint32_t> limit_alphabet = std::nullopt;
  // Roles for tokenizer_config.json. Each is a reserved token, or empty for none.
  std::string bos_token = "<|im_start|>";
  std::string eos_token = "<|im_end|>";
  std::string pad_token = "<|endoftext|>";
  std::string unk_token = "<|endoftext|>";
  std::uint64_t model_max_length = 131072;  // number of tokens; a hint for users of the files
};

struct BpeTrainReport {
  std::uint64_t vocab_size = 0;  // may differ from the requested size, see train_bpe
  std::uint64_t merges = 0;
  std::uint64_t max_pair_count = 0;  // largest count of a pair
};

/// Larger pair counts overflow in Hugging Face's trainer and make its merges wrong.
inline constexpr std::uint64_t kMaxPairCountOfHuggingFace = 0x7FFFFFFF;

/// Checks the options before the words are counted, which may take hours. Throws Error(usage) if a
/// reserved token is empty, too long, invalid UTF-8 or listed twice, or if a role is not a reserved
/// token.
void check_train_options(const BpeTrainOptions& options);

/// Returns the number of tokens that any training has: the reserved tokens and, with all_bytes and
/// no limit, the bytes.
std::uint64_t fewest_tokens(const BpeTrainOptions& options);

/// Learns merges and returns the contents of tokenizer.json and tokenizer_config.json by file name.
///
/// tokenizer.json equals, byte for byte, the file that Hugging Face `tokenizers` 0.23 saves for the
/// same training. This holds for pair counts below 2^31; here they have 64 bits. The result has
/// fewer tokens than requested if the text has no more pairs. It has more tokens, and no merges, if
/// the reserved tokens and the alphabet alone are more.
///   time, memory  as MergeLearner, besides `counts`
/// Throws like check_train_options.
/// Source: Sennrich et al., ACL 2016. The rules are those of huggingface/tokenizers 0.23,
/// `models/bpe/trainer.rs`: the order of pairs with equal counts (smaller left id, then smaller
/// right id) and the meaning of min_frequency, max_token_length and limit_alphabet.
std::map<std::string, std::string> train_bpe(const WordCounter& counts,
                                             const BpeTrainOptions& options = {},
                                             BpeTrainReport* report = nullptr);

}  // namespace trireme::text
