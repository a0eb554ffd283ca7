#include "data/order/samples.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <numeric>
#include <set>

#include "core/error.hpp"
#include "data/loader.hpp"
#include "support/sample_targets.hpp"
#include "unit/data/small_set.hpp"

namespace trireme::data {
namespace {

using testing::numbered_documents;
using testing::TestDirectory;
using testing::write_documents;
using testing::write_manifest;

/// Three shards. The number of a token shows its source: shard, then position in the shard.
class Samples : public ::testing::Test {
 protected:
  Samples() {
    std::uint16_t next = 0;
    for (std::uint64_t i = 0; i < 3; ++i) {
      auto documents = numbered_documents(40, 50, unsigned(i) + 1);
      for (auto& document : documents) {
        for (auto& token : document) token = next++;
        starts_.insert(document.front());
        ends_.insert(document.back());
      }
      write_documents(folder_.path(), documents, i, 3, {16});
    }
    num_tokens_ = next;
    write_manifest(folder_.path(), 3);
  }

  TestDirectory folder_{"samples"};
  std::set<std::int64_t> starts_, ends_;
  std::int64_t num_tokens_ = 0;
};

/// Rows have consecutive numbers inside a segment, so targets, positions and bounds can be checked
/// token by token.
void check_batch(const Batch& batch, const std::set<std::int64_t>& starts) {
  ASSERT_EQ(batch.segment_bounds.front(), 0);
  ASSERT_EQ(batch.segment_bounds.back(), batch.B * batch.T);
  std::int64_t targets = 0;
  for (std::size_t s = 0; s + 1 < batch.segment_bounds.size(); ++s) {
    const auto begin = static_cast<std::size_t>(batch.segment_bounds[s]);
    const auto end = static_cast<std::size_t>(batch.segment_bounds[s + 1]);
    ASSERT_LT(begin, end);
    ASSERT_EQ(begin / static_cast<std::size_t>(batch.T),
              (end - 1) / static_cast<std::size_t>(batch.T));
    for (std::size_t i = begin; i < end; ++i) {
      ASSERT_EQ(batch.positions[i], static_cast<std::int64_t>(i - begin));
      const bool predicts = batch.targets[i] != kIgnoreTarget;
      targets += predicts;
      if (predicts) {
        ASSERT_LT(i + 1, end) << "a target across a border";
        ASSERT_EQ(batch.targets[i], batch.tokens[i + 1]);
        ASSERT_EQ(batch.targets[i], batch.tokens[i] + 1);
        ASSERT_FALSE(starts.contains(batch.targets[i])) << "a target in the next document";
      }
    }
  }
  ASSERT_EQ(targets, batch.num_targets);
}

TEST_F(Samples, HoldEveryTokenOnceAnEpochAtAnyLength) {
  const TokenSet set = TokenSet::open(folder_.path());
  for (const std::int64_t seq_len : {2, 16, 17, 33, 500}) {
    const SampleSet samples(set, seq_len);
    const SampleOrder order(samples.size(), 9);
    std::vector<std::int64_t> indices(samples.size());
    for (const std::int64_t epoch : {0, 1}) {
      std::iota(indices.begin(), indices.end(), epoch * static_cast<std::int64_t>(samples.size()));

      const Batch batch = samples.make_batch(indices, order);

      check_batch(batch, starts_);
      std::multiset<std::int64_t> seen;
      for (std::size_t s = 0; s + 1 < batch.segment_bounds.size(); ++s) {
        const auto begin = static_cast<std::size_t>(batch.segment_bounds[s]);
        const auto end = static_cast<std::size_t>(batch.segment_bounds[s + 1]);
        const bool padding = batch.num_targets > 0 && batch.tokens[begin] == 0 && end - begin > 1 &&
                             batch.tokens[begin + 1] == 0;
        if (!padding)
          seen.insert(batch.tokens.begin() + static_cast<long>(begin),
                      batch.tokens.begin() + static_cast<long>(end));
      }
      for (std::int64_t token = 1; token < num_tokens_; ++token)
        ASSERT_EQ(seen.count(token), 1U) << token;
      EXPECT_EQ(count_sample_targets(samples, indices, order), batch.num_targets);
    }
    EXPECT_EQ(samples.prepared(), seq_len == 16);
  }
}

TEST_F(Samples, PreparedTablesEqualTablesMadeHere) {
  const TestDirectory plain("samples_plain");
  for (std::uint64_t i = 0; i < 3; ++i) {
    const TokenShard shard = TokenShard::open(folder_.path() / schema::shard_name(i));
    const auto offsets = shard.document_offsets();
    testing::Documents documents;
    for (std::size_t d = 0; d + 1 < offsets.size(); ++d) {
      std::vector<std::int64_t> ids(offsets[d + 1] - offsets[d]);
      shard.read_tokens(offsets[d], ids);
      documents.emplace_back(ids.begin(), ids.end());
    }
    write_documents(plain.path(), documents, i, 3, {});
  }
  write_manifest(plain.path(), 3);
  const TokenSet with = TokenSet::open(folder_.path());
  const TokenSet without = TokenSet::open(plain.path());
  const SampleSet a(with, 16);
  const SampleSet b(without, 16);
  const SampleOrder order(a.size(), 4);
  std::vector<std::int64_t> all(a.size());
  std::iota(all.begin(), all.end(), 0);

  const Batch x = a.make_batch(all, order);
  const Batch y = b.make_batch(all, order);

  ASSERT_TRUE(a.prepared());
  ASSERT_FALSE(b.prepared());
  EXPECT_EQ(x.tokens, y.tokens);
  EXPECT_EQ(x.segment_bounds, y.segment_bounds);
  EXPECT_EQ(count_sample_targets(a, all, order), count_sample_targets(b, all, order));
}

TEST_F(Samples, ConcatHoldsEveryTokenOnceAndSeparatesDocuments) {
  const TokenSet set = TokenSet::open(folder_.path());
  for (const std::int64_t seq_len : {2, 16, 33, 5000}) {
    const SampleSet samples(set, {.seq_len = seq_len, .packing = Packing::concat});
    ASSERT_EQ(samples.size(), static_cast<std::uint64_t>((num_tokens_ + seq_len - 1) / seq_len));
    const SampleOrder in_order(samples.size(), 0, false);
    std::vector<std::int64_t> all(samples.size());
    std::iota(all.begin(), all.end(), 0);

    const Batch batch = samples.make_batch(all, in_order);

    check_batch(batch, starts_);
    for (std::int64_t i = 0; i < num_tokens_; ++i) ASSERT_EQ(batch.tokens[std::size_t(i)], i);
    EXPECT_EQ(count_sample_targets(samples, all, in_order), batch.num_targets);
  }
}

TEST_F(Samples, ConcatAcrossDocumentsHasATargetForEveryTokenButTheLast) {
  const TokenSet set = TokenSet::open(folder_.path());
  const SampleSet samples(set,
                          {.seq_len = 16, .packing = Packing::concat, .cross_documents = true});
  const SampleOrder in_order(samples.size(), 0, false);
  std::vector<std::int64_t> all(samples.size());
  std::iota(all.begin(), all.end(), 0);

  const Batch batch = samples.make_batch(all, in_order);

  for (std::int64_t i = 0; i + 1 < num_tokens_; ++i)
    ASSERT_EQ(batch.targets[std::size_t(i)], i + 1);
  EXPECT_EQ(batch.targets[std::size_t(num_tokens_) - 1], kIgnoreTarget);
  EXPECT_EQ(batch.num_targets, num_tokens_ - 1);
  EXPECT_EQ(count_sample_targets(samples, all, in_order), batch.num_targets);
  const bool padded = num_tokens_ % 16 != 0;
  EXPECT_EQ(batch.segment_bounds.size(), samples.size() + 1 + (padded ? 1 : 0));
  EXPECT_THROW(SampleSet(set, {.seq_len = 16, .cross_documents = true}), Error);
}

TEST_F(Samples, ARangeOfDocumentsHasOnlyTheirTokens) {
  const TokenSet set = TokenSet::open(folder_.path());
  const TokenShard& second = set.shard(1);
  const std::uint64_t first_tokens = set.manifest().shards[0].counts.tokens;
  for (const Packing packing : {Packing::best_fit, Packing::concat}) {
    for (const DocumentRange range :
         {DocumentRange{0, 40}, {40, 120}, {45, 70}, {39, 81}, {0, 120}, {50, 52}}) {
      const SampleSet samples(set, {.seq_len = 16, .packing = packing, .documents = range});
      std::vector<std::int64_t> all(samples.size());
      std::iota(all.begin(), all.end(), 0);
      const Batch batch = samples.make_batch(all, SampleOrder(samples.size(), 3));
      const auto token_of = [&](std::uint64_t doc) {
        if (doc < 40) return set.shard(0).document_begin(doc);
        if (doc < 80) return first_tokens + second.document_begin(doc - 40);
        if (doc == 120) return set.num_tokens();
        return first_tokens + second.num_tokens() + set.shard(2).document_begin(doc - 80);
      };

      std::set<std::int64_t> seen(batch.tokens.begin(), batch.tokens.end());
      std::set<std::int64_t> expected{0};  // padding
      for (std::uint64_t t = token_of(range.begin); t < token_of(range.end); ++t)
        expected.insert(static_cast<std::int64_t>(t));
      seen.insert(0);
      ASSERT_EQ(seen, expected) << range.begin << " to " << range.end;
      EXPECT_EQ(count_sample_targets(samples, all, SampleOrder(samples.size(), 3)),
                batch.num_targets);
    }
  }
}

/// Returns the message of the Error(data) that opening throws.
std::string refusal(const TokenSet& set, const SampleConfig& config) {
  try {
    const SampleSet samples(set, config);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "was opened";
  return "";
}

TEST_F(Samples, DataWithoutTargetsIsNotOpened) {
  const TokenSet set = TokenSet::open(folder_.path());
  const testing::TestDirectory folder("no_targets");
  testing::write_documents(folder.path(), {{1}, {2}, {3}}, 0, 2, {16});
  testing::write_documents(folder.path(), {{4}, {5, 6}}, 1, 2, {16});
  testing::write_manifest(folder.path(), 2);
  const TokenSet ones = TokenSet::open(folder.path());
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };

  EXPECT_TRUE(has(refusal(set, {.seq_len = 16, .documents = DocumentRange{7, 7}}), "data.split"));
  for (const Packing packing : {Packing::best_fit, Packing::concat}) {
    EXPECT_TRUE(SampleSet(ones, {.seq_len = 16, .packing = packing}).has_targets());
    const std::string message =
        refusal(ones, {.seq_len = 16, .packing = packing, .documents = DocumentRange{0, 4}});
    EXPECT_TRUE(has(message, "documents 0 to 4 (data.split)")) << message;
    EXPECT_TRUE(has(message, folder.path().string())) << message;
  }
  // Across documents, every token but the last has a target.
  EXPECT_TRUE(SampleSet(ones, {.seq_len = 16,
                               .packing = Packing::concat,
                               .cross_documents = true,
                               .documents = DocumentRange{0, 4}})
                  .has_targets());
}

TEST_F(Samples, NoSampleIsARowOfPadding) {
  const TokenSet set = TokenSet::open(folder_.path());
  const SampleSet samples(set, 16);
  const SampleOrder order(samples.size(), 9);

  const Batch batch = samples.make_batch(std::vector<std::int64_t>{0, kNoSample}, order);

  check_batch(batch, starts_);
  EXPECT_EQ(batch.targets[16], kIgnoreTarget);
  EXPECT_EQ(batch.segment_bounds[batch.segment_bounds.size() - 2], 16);
}

TEST_F(Samples, LoaderGivesTheSameUpdatesToAnyNumberOfRanks) {
  const TokenSet set = TokenSet::open(folder_.path());
  const SampleSet samples(set, 16);
  const SampleOrder order(samples.size(), 5);
  const SampleStream stream(samples, {.seed = 5});
  for (const int size : {1, 2, 4}) {
    for (const std::int64_t micro_batch : {1, 2}) {
      std::map<std::int64_t, std::vector<std::int64_t>> rows;  // global sample -> its tokens
      std::map<std::int64_t, std::int64_t> targets;            // number of targets of each update
      for (int rank = 0; rank < size; ++rank) {
        DataLoader loader(
            stream, {.micro_batch = micro_batch, .global_batch = 8, .rank = rank, .size = size});
        for (std::int64_t update = 0; update < 30; ++update) {
          ASSERT_EQ(loader.next_sample(), update * 8);
          const std::int64_t share = loader.next_num_targets();
          std::int64_t trained = 0;
          for (std::int64_t step = 0; step < loader.micro_steps(); ++step) {
            const Batch batch = loader.next();

            trained += batch.num_targets;
            check_batch(batch, starts_);
            for (std::int64_t row = 0; row < batch.B; ++row) {
              const std::int64_t index = batch.sample_indices[static_cast<std::size_t>(row)];
              ASSERT_EQ(index / 8, update);
              const auto begin = batch.tokens.begin() + row * batch.T;
              ASSERT_TRUE(
                  rows.emplace(index, std::vector<std::int64_t>(begin, begin + batch.T)).second);
            }
          }
          ASSERT_EQ(share, trained);
          targets[update] += share;
        }
      }
      ASSERT_EQ(rows.size(), 240U);
      for (const auto& [update, count] : targets) {
        std::vector<std::int64_t> all(8);
        std::iota(all.begin(), all.end(), update * 8);
        ASSERT_EQ(count, count_sample_targets(samples, all, order));
      }
      for (const auto& [index, tokens] : rows) {
        ASSERT_EQ(samples.make_batch(std::vector<std::int64_t>{index}, order).tokens, tokens);
      }
    }
  }
}

TEST_F(Samples, LoaderContinuesWhereAnotherStopped) {
  const TokenSet set = TokenSet::open(folder_.path());
  const SampleSet samples(set, 16);
  const SampleStream stream(samples, {.seed = 5});
  DataLoader whole(stream, {.micro_batch = 2, .global_batch = 8});
  for (int i = 0; i < 3 * 4; ++i) whole.next();

  DataLoader rest(stream,
                  {.micro_batch = 4, .global_batch = 8, .next_sample = whole.next_sample()});

  EXPECT_EQ(rest.next().sample_indices, (std::vector<std::int64_t>{24, 25, 26, 27}));
  EXPECT_EQ(whole.next().sample_indices, (std::vector<std::int64_t>{24, 25}));
}

TEST(LoaderTest, ARankLooksUpOnlyItsOwnSamples) {
  const TestDirectory folder("shares");
  // Each document is one sequence.
  const testing::Documents documents(20, std::vector<std::uint16_t>(16, 7));
  for (const std::uint64_t shard : {0U, 1U})
    write_documents(folder.path(), documents, shard, 2, {16});
  write_manifest(folder.path(), 2);
  // This shard has only samples of rank 1.
  std::filesystem::remove(folder.path() / schema::shard_name(1));
  const TokenSet set = TokenSet::open(folder.path());
  const SampleSet samples(set, 16);
  const SampleStream stream(samples, {.shuffle = false});

  DataLoader loader(stream, {.micro_batch = 20, .global_batch = 40, .size = 2});
  for (int update = 0; update < 5; ++update) {
    EXPECT_EQ(loader.next_num_targets(), 20 * 15);
    EXPECT_EQ(loader.next().num_targets, 20 * 15);
  }
  DataLoader other(stream, {.micro_batch = 20, .global_batch = 40, .rank = 1, .size = 2});
  EXPECT_THROW(other.next_num_targets(), Error);
}

TEST_F(Samples, LoaderRethrowsDamageAndRefusesOddBatches) {
  {
    const auto path = folder_.path() / "shard-00001.h5";
    const auto at = static_cast<long>(TokenShard::open(path).frame().tokens_offset);
    std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(at).put('x');
  }
  const TokenSet set = TokenSet::open(folder_.path());
  const SampleSet samples(set, 16);
  const SampleStream stream(samples, {.seed = 5});
  DataLoader loader(stream, {.global_batch = 1});

  EXPECT_THROW(for (std::uint64_t i = 0; i < samples.size(); ++i) loader.next(), Error);
  EXPECT_THROW(DataLoader(stream, {.micro_batch = 2, .global_batch = 6, .size = 2}), Error);
}

}  // namespace
}  // namespace trireme::data
