#include "text/learn/merge_learner.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <map>

#include "unit/text/text_samples.hpp"

namespace trireme::text {
namespace {

constexpr std::uint64_t kAnyLength = std::numeric_limits<std::uint64_t>::max();

struct Word {
  std::vector<std::uint32_t> ids;
  std::uint64_t count = 0;
};

const std::vector<std::string> kLetters{"a", "b", "c", "d"};

std::vector<Word> random_words(samples::Rng& rng, std::uint32_t letters, std::size_t longest) {
  std::vector<Word> words(1 + rng() % 60);
  for (Word& word : words) {
    word.ids.resize(rng() % (longest + 1));
    for (std::uint32_t& id : word.ids) id = rng() % letters;
    word.count = 1 + rng() % (rng() % 4 == 0 ? 1000 : 3);
  }
  return words;
}

template <class Position>
std::vector<IdPair> learn(const std::vector<Word>& words, std::size_t vocab_size,
                          std::uint64_t min_frequency = 0, std::uint64_t max_length = kAnyLength) {
  MergeLearner<Position> learner(kLetters);
  for (const Word& word : words) learner.add_word(word.ids, word.count);
  learner.learn(vocab_size, min_frequency, max_length);
  return learner.merges();
}

/// Learns merges by definition: counts all pairs again before every merge.
std::vector<IdPair> plain(std::vector<Word> words, std::size_t vocab_size,
                          std::uint64_t min_frequency = 0, std::uint64_t max_length = kAnyLength) {
  std::vector<std::uint64_t> lengths(kLetters.size(), 1);
  std::vector<IdPair> merges;
  while (lengths.size() < vocab_size) {
    std::map<IdPair, std::uint64_t> pairs;
    for (const Word& word : words) {
      for (std::size_t i = 0; i + 1 < word.ids.size(); ++i) {
        const std::uint64_t length = lengths[word.ids[i]] + lengths[word.ids[i + 1]];
        if (length == 2 || length < max_length)
          pairs[id_pair(word.ids[i], word.ids[i + 1])] += word.count;
      }
    }
    if (pairs.empty()) break;
    auto best = pairs.begin();
    for (auto pair = pairs.begin(); pair != pairs.end(); ++pair)
      best = pair->second > best->second ? pair : best;
    if (best->second < min_frequency) break;
    merges.push_back(best->first);
    const auto left = static_cast<std::uint32_t>(best->first >> 32);
    const auto right = static_cast<std::uint32_t>(best->first);
    for (Word& word : words) {
      for (std::size_t i = 0; i + 1 < word.ids.size(); ++i) {
        if (word.ids[i] != left || word.ids[i + 1] != right) continue;
        word.ids[i] = static_cast<std::uint32_t>(lengths.size());
        word.ids.erase(word.ids.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    lengths.push_back(lengths[left] + lengths[right]);
  }
  return merges;
}

TEST(MergeLearner, EqualsTheDefinitionOnManySmallCases) {
  samples::Rng rng(61);
  for (int round = 0; round < 400; ++round) {
    const auto words = random_words(rng, 1 + rng() % 4, rng() % 2 == 0 ? 8 : 60);
    const std::size_t vocab = kLetters.size() + rng() % 80;
    const std::uint64_t least = rng() % 3 == 0 ? rng() % 20 : 0;
    const std::uint64_t longest = rng() % 3 == 0 ? rng() % 9 : kAnyLength;

    ASSERT_EQ(learn<std::uint32_t>(words, vocab, least, longest),
              plain(words, vocab, least, longest))
        << "round " << round;
  }
}

TEST(MergeLearner, WidePlacesGiveTheSame) {
  samples::Rng rng(62);
  for (int round = 0; round < 20; ++round) {
    const auto words = random_words(rng, 3, 40);
    ASSERT_EQ(learn<std::uint64_t>(words, 60), learn<std::uint32_t>(words, 60)) << round;
  }
}

TEST(MergeLearner, OrderOfWordsDoesNotMatter) {
  samples::Rng rng(63);
  const auto words = random_words(rng, 3, 40);
  std::vector<Word> turned(words.rbegin(), words.rend());

  EXPECT_EQ(learn<std::uint32_t>(turned, 60), learn<std::uint32_t>(words, 60));
}

TEST(MergeLearner, MergesFromTheLeftInRuns) {
  const std::vector<Word> words{{std::vector<std::uint32_t>(7, 0), 1}};  // aaaaaaa

  // aa aa aa a, then aaaa aa a: of the remaining pairs, (aa, a) has the smaller id.
  EXPECT_EQ(learn<std::uint32_t>(words, 8),
            (std::vector<IdPair>{id_pair(0, 0), id_pair(4, 4), id_pair(4, 0), id_pair(5, 6)}));
}

TEST(MergeLearner, TellsTheLargestCount) {
  MergeLearner<std::uint32_t> learner(kLetters);
  learner.add_word(std::vector<std::uint32_t>{0, 1}, std::uint64_t{3} << 31);
  learner.learn(5, 0, kAnyLength);

  EXPECT_EQ(learner.max_count(), std::uint64_t{3} << 31);
  EXPECT_EQ(learner.tokens().back(), "ab");
}

TEST(MergeLearner, NothingToDoIsNoWork) {
  EXPECT_TRUE(learn<std::uint32_t>({}, 100).empty());
  EXPECT_TRUE(learn<std::uint32_t>({{{}, 4}, {{2}, 9}}, 100).empty());
  EXPECT_TRUE(learn<std::uint32_t>({{{0, 1}, 4}}, 3).empty());
}

}  // namespace
}  // namespace trireme::text
