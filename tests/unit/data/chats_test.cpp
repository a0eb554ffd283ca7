#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>
#include <set>

#include "core/error.hpp"
#include "data/order/stream.hpp"
#include "data/sequences/pack_documents.hpp"
#include "unit/data/small_set.hpp"

namespace trireme::data {
namespace {

using testing::MaskedTokens;
using testing::TestDirectory;
using testing::write_masked_set;

using Chats = std::vector<std::vector<MaskedTokens>>;  // shard by shard

constexpr std::int64_t kLongestChat = 60;

/// Returns chats of up to 60 tokens, which are consecutive numbers from `token` on. Some have late
/// targets.
Chats random_chats(const std::vector<int>& sizes, std::uint16_t token, unsigned seed) {
  std::mt19937 random(seed);
  Chats shards;
  for (const int size : sizes) {
    auto& chats = shards.emplace_back();
    for (int i = 0; i < size; ++i) {
      MaskedTokens& chat = chats.emplace_back();
      const std::size_t length = 2 + random() % (kLongestChat - 1);
      const std::size_t first = 1 + random() % (length - 1);
      for (std::size_t at = 0; at < length; ++at) {
        chat.ids.push_back(token++);
        chat.mask.push_back(at == first || (at > first && random() % 3 != 0));
      }
    }
  }
  return shards;
}

/// Returns the part of the chat that `pack` would keep.
MaskedTokens cut(MaskedTokens chat, std::int64_t seq_len) {
  while (std::ssize(chat.ids) > seq_len) {
    chat.ids.pop_back();
    chat.mask.pop_back();
  }
  return chat;
}

/// Returns all chats that have a target at this length, by their first token.
std::map<std::int64_t, MaskedTokens> kept_chats(const Chats& shards, std::int64_t seq_len) {
  std::map<std::int64_t, MaskedTokens> kept;
  for (const auto& shard : shards) {
    for (const MaskedTokens& chat : shard) {
      const MaskedTokens left = cut(chat, seq_len);
      if (has_target(left)) kept[left.ids.front()] = left;
    }
  }
  return kept;
}

/// Expects that every segment is a whole chat of `left`, which is removed from it, or padding.
void take_chats(const Batch& batch, std::map<std::int64_t, MaskedTokens>& left) {
  std::int64_t targets = 0;
  for (std::size_t s = 0; s + 1 < batch.segment_bounds.size(); ++s) {
    const auto begin = static_cast<std::size_t>(batch.segment_bounds[s]);
    const auto end = static_cast<std::size_t>(batch.segment_bounds[s + 1]);
    if (batch.tokens[begin] == 0) continue;
    const auto chat = left.find(batch.tokens[begin]);
    ASSERT_NE(chat, left.end()) << "a segment that begins inside a chat, or a repeated chat";
    const auto& [ids, mask] = chat->second;
    ASSERT_EQ(std::vector<std::int64_t>(batch.tokens.begin() + static_cast<long>(begin),
                                        batch.tokens.begin() + static_cast<long>(end)),
              ids);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const bool predicts = i + 1 < ids.size() && mask[i + 1];
      ASSERT_EQ(batch.targets[begin + i], predicts ? ids[i + 1] : kIgnoreTarget);
      ASSERT_EQ(batch.positions[begin + i], static_cast<std::int64_t>(i));
      targets += predicts;
    }
    left.erase(chat);
  }
  ASSERT_EQ(batch.num_targets, targets);
}

class ChatSet : public ::testing::Test {
 protected:
  ChatSet() { write_masked_set(folder_.path(), "sft", chats_, kLongestChat); }

  TestDirectory folder_{"chats"};
  Chats chats_ = random_chats({70, 1, 40}, 1, 3);
};

TEST_F(ChatSet, AChatIsWholeOrLosesItsEndAtAnyLength) {
  const TokenSet set = TokenSet::open(folder_.path());
  for (std::int64_t seq_len = 2; seq_len <= 130; ++seq_len) {
    const SampleSet samples(set, seq_len);
    std::uint64_t sequences = 0;
    for (const auto& shard : chats_) {  // packed like `pack` packs the kept parts
      std::vector<std::uint64_t> offset{0};
      for (const auto& [first, chat] : kept_chats({shard}, seq_len))
        offset.push_back(offset.back() + chat.ids.size());
      sequences += pack_documents(offset, seq_len).num_sequences();
    }
    ASSERT_EQ(samples.size(), sequences);
    auto left = kept_chats(chats_, seq_len);
    for (std::uint64_t i = 0; i < samples.size(); ++i) {
      const std::int64_t index[] = {static_cast<std::int64_t>(i)};
      const Batch batch = samples.make_batch(index, SampleOrder(samples.size(), 3));
      take_chats(batch, left);
      ASSERT_FALSE(HasFatalFailure()) << seq_len;
      ASSERT_EQ(batch.num_targets,
                samples.num_targets(SampleOrder(samples.size(), 3).locate(i).position));
    }
    ASSERT_TRUE(left.empty()) << left.size() << " chats are missing at " << seq_len;
  }
}

TEST_F(ChatSet, APartOfASetHasOnlyItsChats) {
  const TokenSet set = TokenSet::open(folder_.path());
  for (const DocumentRange range : {DocumentRange{0, 70}, {5, 71}, {69, 72}, {80, 111}}) {
    const SampleSet samples(set, {.seq_len = 20, .documents = range});
    std::vector<MaskedTokens> all;
    for (const auto& shard : chats_) all.insert(all.end(), shard.begin(), shard.end());
    auto left = kept_chats({{all.begin() + long(range.begin), all.begin() + long(range.end)}}, 20);
    std::vector<std::int64_t> indices(samples.size());
    std::iota(indices.begin(), indices.end(), 0);

    take_chats(samples.make_batch(indices, SampleOrder(samples.size(), 3)), left);

    EXPECT_TRUE(left.empty());
  }
}

TEST_F(ChatSet, AtAnotherLengthTheEpochContinuesWithWholeChats) {
  StreamConfig config;
  config.phases = parse_plan(
      formatted("{}; from 4 at 50: {}", folder_.path().string(), folder_.path().string()),
      "data.path");
  config.seq_len = 20;
  config.global_batch = 3;
  const SampleStream stream = SampleStream::open(config);
  auto before = kept_chats(chats_, 20);
  const auto all = before;
  take_chats(stream.make_batch(0, 9), before);  // chats that are taken at length 20 ...
  auto left = kept_chats(chats_, 50);
  for (const auto& [first, chat] : kept_chats(chats_, 50)) {
    // ... or have no target there come in the next epoch.
    if (!before.contains(first)) left.erase(first);
  }
  ASSERT_LT(left.size(), all.size());
  std::int64_t index = 9;
  for (; !left.empty() && index < 500; ++index) take_chats(stream.make_batch(index, 1), left);
  EXPECT_TRUE(left.empty());

  auto next = kept_chats(chats_, 50);
  for (; !next.empty() && index < 1000; ++index) take_chats(stream.make_batch(index, 1), next);
  EXPECT_TRUE(next.empty()) << "then whole epochs";
}

TEST_F(ChatSet, TargetsHaveTheWeightsOfTheirTokens) {
  const TokenSet set = TokenSet::open(folder_.path());
  const SampleSet plain(set, 20);
  const SampleOrder order(plain.size(), 3);
  std::vector<std::int64_t> indices(plain.size());
  std::iota(indices.begin(), indices.end(), 0);
  indices.push_back(kNoSample);
  const Batch batch = plain.make_batch(indices, order);
  EXPECT_TRUE(batch.target_weights.empty());
  TokenWeights weights;
  for (std::size_t i = 0; i < batch.targets.size(); i += 3) {
    if (batch.targets[i] != kIgnoreTarget)
      weights[batch.targets[i]] = static_cast<float>(batch.targets[i]) * 0.5F;
  }
  ASSERT_GT(weights.size(), 20U);

  const SampleSet weighted(set, {.seq_len = 20, .token_weights = weights});
  const Batch with = weighted.make_batch(indices, order);

  EXPECT_EQ(with.targets, batch.targets);
  EXPECT_EQ(with.num_targets, batch.num_targets) << "a weight changes no count";
  ASSERT_EQ(with.target_weights.size(), with.targets.size());
  for (std::size_t i = 0; i < with.targets.size(); ++i) {
    const bool weighs = weights.contains(with.targets[i]);
    ASSERT_EQ(with.target_weights[i], weighs ? static_cast<float>(with.targets[i]) * 0.5F : 1.0F);
  }
}

}  // namespace
}  // namespace trireme::data
