#include "text/bpe_trainer.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "core/error.hpp"
#include "text/byte_level.hpp"
#include "text/merge_learner.hpp"
#include "text/tokenizer_writer.hpp"
#include "text/utf8.hpp"

namespace trireme {
namespace {

void check(const BpeTrainOptions& options) {
  std::unordered_set<std::string> contents;
  for (const ReservedToken& token : options.reserved) {
    check_utf8(token.content, "reserved token");
    if (token.content.empty()) fail(ErrorKind::usage, "a reserved token is empty");
    if (!contents.insert(token.content).second)
      fail(ErrorKind::usage, "reserved token '", token.content, "' is given twice");
  }
  for (const auto* role :
       {&options.bos_token, &options.eos_token, &options.pad_token, &options.unk_token}) {
    if (role->empty() || contents.contains(*role)) continue;
    fail(ErrorKind::usage,
         "'",
         *role,
         "' is to be the bos, eos, pad or unk token, but is not among the reserved tokens");
  }
}

/// Reserved tokens, then the byte alphabet by code point (bytes that are reserved tokens already
/// are not repeated).
std::vector<std::string> first_tokens(const BpeTrainOptions& options) {
  std::vector<std::string> tokens;
  for (const ReservedToken& token : options.reserved) tokens.push_back(token.content);
  const std::unordered_set<std::string> reserved(tokens.begin(), tokens.end());
  std::vector<std::string> alphabet;
  alphabet.reserve(256);
  for (int byte = 0; byte < 256; ++byte)
    alphabet.push_back(to_byte_level(std::string(1, static_cast<char>(byte))));
  std::sort(alphabet.begin(), alphabet.end());  // UTF-8 sorts as its code points do
  for (const std::string& token : alphabet) {
    if (!reserved.contains(token)) tokens.push_back(token);
  }
  return tokens;
}

/// A pair that was learned twice is listed once, at its last rank.
std::vector<std::pair<std::uint32_t, std::uint32_t>> last_ranks(
    const std::vector<MergeLearner::Pair>& merges) {
  std::unordered_map<MergeLearner::Pair, std::size_t> last;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) last[merges[rank]] = rank;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> kept;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    if (last[merges[rank]] != rank) continue;
    kept.emplace_back(static_cast<std::uint32_t>(merges[rank] >> 32),
                      static_cast<std::uint32_t>(merges[rank]));
  }
  return kept;
}

}  // namespace

std::vector<ReservedToken> minimind_reserved_tokens() {
  std::vector<ReservedToken> tokens;
  for (const char* name : {"endoftext",
                           "im_start",
                           "im_end",
                           "object_ref_start",
                           "object_ref_end",
                           "box_start",
                           "box_end",
                           "quad_start",
                           "quad_end",
                           "vision_start",
                           "vision_end",
                           "vision_pad",
                           "image_pad",
                           "video_pad",
                           "audio_start",
                           "audio_end",
                           "audio_pad"}) {
    tokens.push_back({cat("<|", name, "|>"), true});
  }
  for (const char* name : {"tts_pad", "tts_text_bos", "tts_text_eod", "tts_text_bos_single"})
    tokens.push_back({cat("<", name, ">"), true});
  for (const char* name : {"tool_call", "tool_response", "think"}) {
    tokens.push_back({cat("<", name, ">"), false});
    tokens.push_back({cat("</", name, ">"), false});
  }
  for (int i = 1; i <= 9; ++i) tokens.push_back({cat("<|buffer", i, "|>"), false});
  return tokens;
}

std::map<std::string, std::string> train_bpe(const WordCounter& counts,
                                             const BpeTrainOptions& options) {
  check(options);
  std::vector<std::string> tokens = first_tokens(options);
  if (options.vocab_size < tokens.size()) {
    fail(ErrorKind::usage,
         "vocab_size = ",
         options.vocab_size,
         ", must be at least ",
         tokens.size(),
         ": ",
         options.reserved.size(),
         " reserved tokens and the bytes");
  }
  MergeLearner learner(std::move(tokens));
  for (const auto& [word, count] : counts.sorted()) learner.add_word(word, count);
  constexpr auto kNoLimit = std::numeric_limits<std::uint64_t>::max();
  learner.learn(options.vocab_size,
                options.min_frequency,
                options.max_token_length ? *options.max_token_length : kNoLimit);
  return {{"tokenizer.json",
           write_tokenizer_json(learner.tokens(), last_ranks(learner.merges()), options.reserved)},
          {"tokenizer_config.json", write_tokenizer_config(options)}};
}

}  // namespace trireme
