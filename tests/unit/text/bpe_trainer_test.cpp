#include "text/learn/bpe_trainer.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "support/sorted_words.hpp"
#include "text/unicode/byte_level.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::text {
namespace {

using Merges = std::vector<std::pair<std::string, std::string>>;

BpeTrainOptions bare(std::uint32_t vocab_size) {
  return {.vocab_size = vocab_size,
          .reserved = {},
          .bos_token = "",
          .eos_token = "",
          .pad_token = "",
          .unk_token = ""};
}

Merges merges_of(const WordCounter& counter, const BpeTrainOptions& options) {
  Merges merges;
  const Json json = parse_json(train_bpe(counter, options).at("tokenizer.json"), "test");
  for (const auto& merge : json["model"]["merges"]) {
    merges.emplace_back(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  return merges;
}

WordCounter count(const std::vector<std::string>& texts) {
  WordCounter counter;
  for (const std::string& text : texts) counter.add(text);
  return counter;
}

/// Trains by definition: counts all pairs again before every merge. Ties go to the smaller ids.
Merges plain_training(const WordCounter& counter, std::size_t num_merges) {
  std::map<std::string, std::size_t> id;
  for (int byte = 0; byte < 256; ++byte)
    id[to_byte_level(std::string(1, static_cast<char>(byte)))] = 0;
  std::size_t next = 0;
  // The alphabet is sorted by code point, which equals the order of UTF-8.
  for (auto& [token, number] : id) number = next++;
  std::vector<std::pair<std::vector<std::string>, std::uint64_t>> words;
  for (const auto& [word, times] : sorted_words(counter)) {
    std::vector<std::string> symbols;
    for (const char c : word) symbols.push_back(to_byte_level(std::string(1, c)));
    words.emplace_back(symbols, times);
  }
  Merges merges;
  while (merges.size() < num_merges) {
    std::map<std::pair<std::size_t, std::size_t>, std::uint64_t> pairs;
    std::map<std::size_t, std::string> token_of;
    for (const auto& [token, number] : id) token_of[number] = token;
    for (const auto& [symbols, times] : words) {
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i)
        pairs[{id[symbols[i]], id[symbols[i + 1]]}] += times;
    }
    if (pairs.empty()) break;
    auto best = pairs.begin();
    for (auto pair = pairs.begin(); pair != pairs.end(); ++pair)
      best = pair->second > best->second ? pair : best;
    const std::string left = token_of[best->first.first];
    const std::string right = token_of[best->first.second];
    merges.emplace_back(left, right);
    id.emplace(left + right, id.size());
    for (auto& [symbols, times] : words) {
      for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
        if (symbols[i] != left || symbols[i + 1] != right) continue;
        symbols[i] += right;
        symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
  }
  return merges;
}

TEST(BpeTrainer, LearnsTheTextbookExample) {
  const WordCounter counter = count({"aaabdaaabac"});

  EXPECT_EQ(merges_of(counter, bare(259)), (Merges{{"a", "a"}, {"a", "b"}, {"aa", "ab"}}));
}

TEST(BpeTrainer, EqualsTrainingByDefinition) {
  samples::Rng rng(41);
  for (int round = 0; round < 6; ++round) {
    std::vector<std::string> texts;
    for (int i = 0; i < 40; ++i) {
      std::string text;
      for (std::size_t n = rng() % 30; n > 0; --n)
        text += round % 2 == 0 ? std::string(1, "abc "[rng() % 4]) : samples::random_text(rng, 2);
      texts.push_back(text);
    }
    const WordCounter counter = count(texts);
    const Merges plain = plain_training(counter, 40);
    ASSERT_EQ(merges_of(counter, bare(256 + 40)), plain) << "round " << round;
  }
}

TEST(BpeTrainer, CountsAreIndependentOfOrderAndPartition) {
  samples::Rng rng(42);
  std::vector<std::string> texts(60);
  for (std::string& text : texts) text = samples::random_text(rng, 30);
  const WordCounter whole = count(texts);
  WordCounter first = count({texts.rbegin(), texts.rbegin() + 25});
  const WordCounter second = count({texts.begin(), texts.begin() + 35});

  first.merge(second);

  EXPECT_EQ(sorted_words(first), sorted_words(whole));
  EXPECT_EQ(train_bpe(first, {.vocab_size = 500}), train_bpe(whole, {.vocab_size = 500}));
}

TEST(BpeTrainer, LinesOrTextsDecideHowLineEndsAreCut) {
  WordCounter whole;
  whole.add("a  \n  b");
  WordCounter lines;
  lines.add_lines("a  \n  b");

  using Words = std::vector<std::pair<std::string, std::uint64_t>>;
  EXPECT_EQ(sorted_words(whole), (Words{{"  \n ", 1}, {" b", 1}, {"a", 1}}));
  EXPECT_EQ(sorted_words(lines), (Words{{" ", 1}, {"  \n", 1}, {" b", 1}, {"a", 1}}));
}

TEST(BpeTrainer, StopsAtMinFrequencyAndWhenTextEnds) {
  const WordCounter counter = count({"ab ab ab", "cd cd"});  // ab 3 (twice with a space), cd 2

  BpeTrainOptions options = bare(1000);
  EXPECT_EQ(merges_of(counter, options).size(), 4U);
  options.min_frequency = 3;
  EXPECT_EQ(merges_of(counter, options), (Merges{{"a", "b"}}));
  EXPECT_EQ(merges_of(WordCounter{}, options), Merges{});
}

TEST(BpeTrainer, MaxTokenLengthBoundsNewTokens) {
  const WordCounter counter = count({"aaaaaaaaaaaaaaaa"});

  BpeTrainOptions options = bare(1000);
  options.max_token_length = 5;
  for (const auto& [left, right] : merges_of(counter, options))
    EXPECT_LT(left.size() + right.size(), 5U);
  EXPECT_EQ(merges_of(counter, options).size(), 2U);
}

TEST(BpeTrainer, CountsPast32BitsDoNotWrap) {
  WordCounter counter;
  counter.add_word("xy", std::uint64_t{3} << 31);
  counter.add_word("ab", 5);

  EXPECT_EQ(merges_of(counter, bare(257)), (Merges{{"x", "y"}}));
}

TEST(BpeTrainer, ReservedTokensComeFirstAndStayOutOfTheMerges) {
  const Json json = parse_json(samples::small_files().at("tokenizer.json"), "test");
  const auto& vocab = json["model"]["vocab"];

  EXPECT_EQ(vocab.size(), 700U);
  EXPECT_EQ(vocab["<|endoftext|>"], 0);
  EXPECT_EQ(vocab["<|buffer9|>"], 35);
  EXPECT_EQ(vocab["!"], 36);
  EXPECT_EQ(json["model"]["merges"].size(), 700U - 36 - 256);
  ASSERT_EQ(json["added_tokens"].size(), 36U);
  for (int i = 0; i < 36; ++i)
    EXPECT_EQ(json["added_tokens"][static_cast<std::size_t>(i)]["special"], i < 21) << i;
}

std::vector<std::string> vocab_of(const WordCounter& counter, const BpeTrainOptions& options) {
  const Json json = parse_json(train_bpe(counter, options).at("tokenizer.json"), "test");
  std::vector<std::string> tokens(json["model"]["vocab"].size());
  for (const auto& [token, id] : json["model"]["vocab"].items())
    tokens.at(id.get<std::size_t>()) = token;
  return tokens;
}

TEST(BpeTrainer, VocabularySmallerThanTheAlphabetLearnsNothing) {
  BpeTrainReport report;
  const auto files = train_bpe(count({"abab"}), bare(100), &report);

  EXPECT_EQ(report.vocab_size, 256U);
  EXPECT_EQ(report.merges, 0U);
  EXPECT_EQ(vocab_of(count({"abab"}), bare(100)).size(), 256U);
}

// The three expected results below come from tokenizers 0.23.3 with the same texts and options.

TEST(BpeTrainer, AlphabetOfWhatOccurs) {
  BpeTrainOptions options = bare(100);
  options.all_bytes = false;
  options.reserved = {{"<s>"}};

  EXPECT_EQ(
      vocab_of(count({"abab aab c", "abab aab c", "abab aab c"}), options),
      (std::vector<std::string>{"<s>", "a", "b", "c", "Ġ", "ab", "aab", "Ġc", "Ġaab", "abab"}));
}

TEST(BpeTrainer, LimitedAlphabetLeavesRareCharactersOutOfTheWords) {
  BpeTrainOptions options = bare(100);
  options.all_bytes = false;
  options.limit_alphabet = 2;
  options.reserved = {{"<s>"}};

  EXPECT_EQ(vocab_of(count({"abab aab c", "abab aab c", "abab aab c"}), options),
            (std::vector<std::string>{"<s>", "a", "b", "ab", "aab", "abab"}));
}

TEST(BpeTrainer, CutTokensAreWordsOfPlainCharacters) {
  WordCounter counter(SplitStep::gpt2,
                      std::make_shared<const CutTokens>(std::vector<std::string>{"<s>", "世 界"}));
  for (int i = 0; i < 3; ++i) counter.add("a 世 界b 世 界");
  BpeTrainOptions options = bare(400);
  options.reserved = {{"<s>"}, {"世 界"}};

  EXPECT_EQ(counter.cut_tokens().at("世 界"), 6U);
  EXPECT_EQ(merges_of(counter, options), (Merges{{" ", "界"}, {"世", " 界"}}));
  WordCounter other(counter);
  other.merge(counter);
  EXPECT_EQ(other.cut_tokens().at("世 界"), 12U);
}

TEST(BpeTrainer, AnotherPatternCutsAndIsWritten) {
  WordCounter counter(SplitStep::llama3);
  counter.add("don't 12345");
  const auto files = train_bpe(counter, bare(300));

  EXPECT_EQ(sorted_words(counter).size(), 5U);  // don 't space 123 45
  const Tokenizer tokenizer = Tokenizer::from_files(files, "test");
  EXPECT_EQ(tokenizer.encode("12345").size(), 2U);
  counter.clear();
  EXPECT_EQ(counter.size(), 0U);
  EXPECT_EQ(counter.pattern(), SplitStep::llama3);
}

TEST(BpeTrainer, RefusesOptionsThatCannotWork) {
  const auto refuses = [](const BpeTrainOptions& options) {
    try {
      train_bpe(WordCounter{}, options);
    } catch (const Error& error) {
      return error.kind() == ErrorKind::usage;
    }
    return false;
  };
  EXPECT_FALSE(refuses({}));
  EXPECT_TRUE(refuses({.reserved = {{"<a>"}, {"<a>"}}}));
  EXPECT_TRUE(refuses({.reserved = {{""}}}));
  EXPECT_TRUE(refuses({.reserved = {{std::string(2000, 'x')}}}));
  EXPECT_TRUE(refuses({.eos_token = "</s>"}));
}

}  // namespace
}  // namespace trireme::text
