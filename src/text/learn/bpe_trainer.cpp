#include "text/learn/bpe_trainer.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "core/error.hpp"
#include "text/learn/merge_learner.hpp"
#include "text/learn/tokenizer_writer.hpp"
#include "text/spec/tokenizer_spec.hpp"
#include "text/unicode/byte_level.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

/// Calls visit(character) for each character of valid UTF-8.
template <class Visit>
void for_each_character(std::string_view text, Visit&& visit) {
  for (std::size_t at = 0, length = 0; at < text.size(); at += length) {
    utf8_decode(text.data() + at, length);
    visit(std::string(text.substr(at, length)));
  }
}

/// Returns the 256 characters of the byte alphabet, by byte.
const std::array<std::string, 256>& byte_characters() {
  static const std::array<std::string, 256> characters = [] {
    std::array<std::string, 256> made;
    for (std::size_t byte = 0; byte < made.size(); ++byte)
      made[byte] = to_byte_level(std::string(1, static_cast<char>(byte)));
    return made;
  }();
  return characters;
}

/// Counts the characters: those of the byte alphabet in words, and all in cut tokens. Sorted by
/// code point, as UTF-8 sorts.
std::map<std::string, std::uint64_t> count_characters(const WordCounter& counts) {
  std::array<std::uint64_t, 256> bytes{};
  counts.pieces().for_each([&](std::string_view word, std::uint64_t count) {
    for (const char c : word) bytes[static_cast<unsigned char>(c)] += count;
  });
  std::map<std::string, std::uint64_t> characters;
  for (std::size_t byte = 0; byte < bytes.size(); ++byte) {
    if (bytes[byte] != 0) characters[byte_characters()[byte]] += bytes[byte];
  }
  for (const auto& entry : counts.cut_tokens()) {
    for_each_character(entry.first, [&](const std::string& c) { characters[c] += entry.second; });
  }
  return characters;
}

/// Returns the characters that get a token, by code point.
std::vector<std::string> alphabet_of(const WordCounter& counts, const BpeTrainOptions& options) {
  constexpr auto kAlways = std::numeric_limits<std::uint64_t>::max();
  std::map<std::string, std::uint64_t> characters = count_characters(counts);
  if (options.all_bytes) {
    for (const std::string& character : byte_characters()) characters[character] = kAlways;
  }
  std::vector<std::pair<std::uint64_t, std::string>> kept;
  for (const auto& [character, count] : characters) kept.emplace_back(kAlways - count, character);
  if (options.limit_alphabet && *options.limit_alphabet < kept.size()) {
    std::sort(kept.begin(), kept.end());  // most frequent first; smallest first among equal counts
    kept.resize(*options.limit_alphabet);
  }
  std::vector<std::string> alphabet;
  for (auto& entry : kept) alphabet.push_back(std::move(entry.second));
  std::sort(alphabet.begin(), alphabet.end());
  return alphabet;
}

/// Returns the reserved tokens and then the alphabet, without characters that are reserved tokens.
std::vector<std::string> first_tokens(const WordCounter& counts, const BpeTrainOptions& options) {
  std::vector<std::string> tokens;
  for (const ReservedToken& token : options.reserved) tokens.push_back(token.content);
  const std::unordered_set<std::string> reserved(tokens.begin(), tokens.end());
  for (std::string& character : alphabet_of(counts, options)) {
    if (!reserved.contains(character)) tokens.push_back(std::move(character));
  }
  return tokens;
}

/// Adds all words to the learner, sorted by count, without characters outside the alphabet.
template <class Position>
void add_words(const WordCounter& counts, MergeLearner<Position>& learner) {
  constexpr std::uint32_t kAbsent = 0xFFFFFFFF;
  std::unordered_map<std::string_view, std::uint32_t> id_of;
  for (std::size_t id = 0; id < learner.tokens().size(); ++id)
    id_of.emplace(learner.tokens()[id], static_cast<std::uint32_t>(id));
  const auto find = [&](std::string_view character) {
    const auto found = id_of.find(character);
    return found == id_of.end() ? kAbsent : found->second;
  };
  std::array<std::uint32_t, 256> id_of_byte{};
  for (std::size_t byte = 0; byte < id_of_byte.size(); ++byte)
    id_of_byte[byte] = find(byte_characters()[byte]);

  learner.reserve(counts.size(), counts.pieces().bytes());
  std::vector<std::uint32_t> ids;
  const auto take = [&ids](std::uint32_t id) {
    if (id != kAbsent) ids.push_back(id);
  };
  counts.pieces().for_each_by_count([&](std::string_view word, std::uint64_t count) {
    ids.clear();
    for (const char byte : word) take(id_of_byte[static_cast<unsigned char>(byte)]);
    learner.add_word(ids, count);
  });
  for (const auto& [token, count] : counts.cut_tokens()) {
    ids.clear();
    for_each_character(token, [&](const std::string& character) { take(find(character)); });
    learner.add_word(ids, count);
  }
}

/// Lists a pair that was learned twice only once, at its last rank.
std::vector<std::pair<std::uint32_t, std::uint32_t>> last_ranks(const std::vector<IdPair>& merges) {
  std::unordered_map<IdPair, std::size_t> last;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) last[merges[rank]] = rank;
  std::vector<std::pair<std::uint32_t, std::uint32_t>> kept;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    if (last[merges[rank]] != rank) continue;
    kept.emplace_back(static_cast<std::uint32_t>(merges[rank] >> 32),
                      static_cast<std::uint32_t>(merges[rank]));
  }
  return kept;
}

template <class Position>
std::map<std::string, std::string> train(const WordCounter& counts, std::vector<std::string> tokens,
                                         const BpeTrainOptions& options, BpeTrainReport& report) {
  MergeLearner<Position> learner(std::move(tokens));
  add_words(counts, learner);
  learner.learn(options.vocab_size, options.min_frequency,
                options.max_token_length ? *options.max_token_length
                                         : std::numeric_limits<std::uint64_t>::max());
  report = {.vocab_size = learner.tokens().size(),
            .merges = learner.merges().size(),
            .max_pair_count = learner.max_count()};
  return {{"tokenizer.json", write_tokenizer_json(learner.tokens(), last_ranks(learner.merges()),
                                                  options.reserved, counts.pattern())},
          {"tokenizer_config.json", write_tokenizer_config(options)}};
}

}  // namespace

std::vector<ReservedToken> minimind_reserved_tokens() {
  std::vector<ReservedToken> tokens;
  for (const char* name :
       {"endoftext", "im_start", "im_end", "object_ref_start", "object_ref_end", "box_start",
        "box_end", "quad_start", "quad_end", "vision_start", "vision_end", "vision_pad",
        "image_pad", "video_pad", "audio_start", "audio_end", "audio_pad"}) {
    tokens.push_back({formatted("<|{}|>", name), true});
  }
  for (const char* name : {"tts_pad", "tts_text_bos", "tts_text_eod", "tts_text_bos_single"})
    tokens.push_back({formatted("<{}>", name), true});
  for (const char* name : {"tool_call", "tool_response", "think"}) {
    tokens.push_back({formatted("<{}>", name), false});
    tokens.push_back({formatted("</{}>", name), false});
  }
  for (int i = 1; i <= 9; ++i) tokens.push_back({formatted("<|buffer{}|>", i), false});
  return tokens;
}

void check_train_options(const BpeTrainOptions& options) {
  std::unordered_set<std::string> contents;
  for (const ReservedToken& token : options.reserved) {
    check_utf8(token.content, "reserved token");
    if (token.content.empty()) fail(ErrorKind::usage, "a reserved token is empty");
    if (token.content.size() > kMaxAddedTokenBytes) {
      fail(ErrorKind::usage, "reserved token '{}...' has {} bytes, must have at most {}",
           token.content.substr(0, 40), token.content.size(), kMaxAddedTokenBytes);
    }
    if (!contents.insert(token.content).second)
      fail(ErrorKind::usage, "reserved token '{}' is given twice. Remove one of them.",
           token.content);
  }
  for (const auto* role :
       {&options.bos_token, &options.eos_token, &options.pad_token, &options.unk_token}) {
    if (role->empty() || contents.contains(*role)) continue;
    fail(
        ErrorKind::usage,
        "'{}' is the bos, eos, pad or unk token, but it is not a reserved token. Reserve it or choose another.",
        *role);
  }
}

std::uint64_t fewest_tokens(const BpeTrainOptions& options) {
  std::set<std::string> tokens;
  for (const ReservedToken& token : options.reserved) tokens.insert(token.content);
  if (options.all_bytes && !options.limit_alphabet)
    tokens.insert(byte_characters().begin(), byte_characters().end());
  return tokens.size();
}

std::map<std::string, std::string> train_bpe(const WordCounter& counts,
                                             const BpeTrainOptions& options,
                                             BpeTrainReport* report) {
  check_train_options(options);
  std::vector<std::string> tokens = first_tokens(counts, options);
  std::uint64_t places = 1 + counts.pieces().bytes() + counts.size();
  for (const auto& entry : counts.cut_tokens()) places += entry.first.size();
  BpeTrainReport unread;
  BpeTrainReport& written = report == nullptr ? unread : *report;
  return places < std::numeric_limits<std::uint32_t>::max()
             ? train<std::uint32_t>(counts, std::move(tokens), options, written)
             : train<std::uint64_t>(counts, std::move(tokens), options, written);
}

}  // namespace trireme::text
