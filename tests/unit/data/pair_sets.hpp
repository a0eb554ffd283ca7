#pragma once
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>

#include "data/order/stream.hpp"
#include "unit/data/small_set.hpp"

/// Sets of random preference pairs, and the part of them that a sequence length keeps, token by
/// token.
namespace trireme::testing {

using PairShards = std::vector<std::vector<MaskedPair>>;

inline constexpr std::int64_t kLongestSide = 40;

/// Pairs with sides of up to 40 tokens. Some targets are in the prompt, and some come late. In some
/// pairs the sides share no token, in others one side is the beginning of the other.
inline PairShards random_pairs(const std::vector<int>& sizes, unsigned seed) {
  std::mt19937 random(seed);
  const auto tokens = [&](MaskedTokens& side, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
      side.ids.push_back(2 + static_cast<std::int64_t>(random() % 60000));
      side.mask.push_back(!side.mask.empty() && random() % 4 == 0);
    }
  };
  PairShards shards;
  for (const int size : sizes) {
    auto& pairs = shards.emplace_back();
    while (std::ssize(pairs) < size) {
      MaskedPair pair;
      pair.prompt = random() % 5 == 0 ? 0 : static_cast<std::uint32_t>(random() % 25);
      tokens(pair.chosen, pair.prompt);
      pair.rejected = pair.chosen;
      tokens(pair.chosen, random() % 16);
      tokens(pair.rejected, random() % 16);
      const std::size_t shorter = std::min(pair.chosen.ids.size(), pair.rejected.ids.size());
      if (shorter < 2 || pair.chosen.ids == pair.rejected.ids) continue;
      if (shorter > pair.prompt) pair.chosen.ids[pair.prompt] = pair.rejected.ids[pair.prompt] ^ 1;
      pair.chosen.mask.back() = true;
      pair.rejected.mask.back() = true;
      pairs.push_back(pair);
    }
  }
  return shards;
}

inline void drop_first(MaskedTokens& side) {
  side.ids.erase(side.ids.begin());
  side.mask.erase(side.mask.begin());
  if (!side.mask.empty()) side.mask[0] = false;
}

inline void drop_last(MaskedTokens& side) {
  side.ids.pop_back();
  side.mask.pop_back();
}

/// The rule of data sets without the key "cut_pairs".
inline constexpr const char* kOldRule = "";

/// Returns the options of `pack` in a manifest.
inline std::string config_of(const std::string& rule) {
  return rule.empty() ? "{}" : R"({"cut_pairs":")" + rule + R"("})";
}

/// Cuts a pair token by token like `pack --seq-len --cut-pairs`. Returns none if the pair is
/// dropped.
inline std::optional<MaskedPair> cut(MaskedPair pair, std::int64_t seq_len,
                                     const std::string& rule) {
  const auto longer = [&] {
    return std::max(std::ssize(pair.chosen.ids), std::ssize(pair.rejected.ids));
  };
  if (rule == "drop" && longer() > seq_len) return std::nullopt;
  const std::int64_t least = rule == kOldRule ? 1 : (seq_len + 3) / 4;
  while (rule != "end" && longer() > seq_len && pair.prompt > least) {
    drop_first(pair.chosen);
    drop_first(pair.rejected);
    --pair.prompt;
  }
  for (MaskedTokens* side : {&pair.chosen, &pair.rejected}) {
    const bool cut = std::ssize(side->ids) > seq_len;
    while (std::ssize(side->ids) > seq_len) drop_last(*side);
    const auto& mask = side->mask;
    const auto answer = mask.begin() + std::min(std::ssize(mask), std::int64_t{pair.prompt});
    const bool answers = std::find(answer, mask.end(), true) != mask.end();
    if (!has_target(*side) || (cut && rule != kOldRule && !answers)) return std::nullopt;
  }
  return pair;
}

/// Returns each pair that is kept: its document in the data set, and the tokens that are left.
inline std::map<std::int64_t, MaskedPair> kept_pairs(const PairShards& shards, std::int64_t seq_len,
                                                     const std::string& rule = kOldRule) {
  std::map<std::int64_t, MaskedPair> kept;
  std::int64_t document = 0;
  for (const auto& shard : shards) {
    for (const MaskedPair& pair : shard) {
      if (const auto left = cut(pair, seq_len, rule)) kept[document] = *left;
      ++document;
    }
  }
  return kept;
}

/// Returns the batch of these pairs, made token by token.
inline data::Batch expected_batch(const std::vector<std::pair<std::int64_t, MaskedPair>>& pairs,
                                  std::int64_t row_multiple) {
  data::Batch batch;
  batch.B = 1;
  batch.segment_bounds = {0};
  for (const auto& [record, pair] : pairs) {
    for (const MaskedTokens* side : {&pair.chosen, &pair.rejected}) {
      const std::int32_t sequence =
          static_cast<std::int32_t>(2 * batch.num_pairs) + (side == &pair.rejected ? 1 : 0);
      for (std::size_t i = 0; i < side->ids.size(); ++i) {
        const bool predicts = i + 1 < side->ids.size() && side->mask[i + 1];
        batch.tokens.push_back(side->ids[i]);
        batch.targets.push_back(predicts ? side->ids[i + 1] : data::kIgnoreTarget);
        batch.positions.push_back(static_cast<std::int64_t>(i));
        batch.sequence_of.push_back(sequence);
        batch.num_targets += predicts;
      }
      batch.segment_bounds.push_back(static_cast<std::int32_t>(batch.tokens.size()));
    }
    batch.pair_records.push_back(record);
    ++batch.num_pairs;
  }
  std::int64_t padding = 0;
  while (batch.tokens.empty() || std::ssize(batch.tokens) % row_multiple != 0) {
    batch.tokens.push_back(0);
    batch.targets.push_back(data::kIgnoreTarget);
    batch.positions.push_back(padding++);
    batch.sequence_of.push_back(-1);
  }
  batch.T = std::ssize(batch.tokens);
  if (padding > 0) batch.segment_bounds.push_back(static_cast<std::int32_t>(batch.T));
  return batch;
}

inline void expect_equal(const data::Batch& batch, const data::Batch& expected) {
  ASSERT_EQ(batch.B, expected.B);
  ASSERT_EQ(batch.T, expected.T);
  ASSERT_EQ(batch.tokens, expected.tokens);
  ASSERT_EQ(batch.targets, expected.targets);
  ASSERT_EQ(batch.positions, expected.positions);
  ASSERT_EQ(batch.segment_bounds, expected.segment_bounds);
  ASSERT_EQ(batch.sequence_of, expected.sequence_of);
  ASSERT_EQ(batch.num_targets, expected.num_targets);
  ASSERT_EQ(batch.num_pairs, expected.num_pairs);
  ASSERT_EQ(batch.pair_records, expected.pair_records);
}

class PairSet : public ::testing::Test {
 protected:
  PairSet() { write_masked_set(at("a"), "dpo", pairs_, kLongestSide); }

  [[nodiscard]] std::filesystem::path at(const char* name) const { return folder_.path() / name; }

  [[nodiscard]] data::StreamConfig config(std::string plan) const {
    for (std::size_t i = plan.find('$'); i != std::string::npos; i = plan.find('$'))
      plan.replace(i, 1, folder_.path().string() + "/");
    data::StreamConfig config;
    config.phases = data::parse_plan(plan, "data.path");
    config.global_batch = 12;
    config.seed = 5;
    config.row_multiple = 4;
    return config;
  }

  TestDirectory folder_{"pair_set"};
  PairShards pairs_ = random_pairs({50, 3, 29}, 7);
};

}  // namespace trireme::testing
