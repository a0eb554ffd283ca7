#include "data/shards/targets.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <set>

#include "core/error.hpp"
#include "data/order/samples.hpp"
#include "data/sequences/pack_documents.hpp"
#include "support/sample_targets.hpp"
#include "unit/data/small_set.hpp"

namespace trireme::data {
namespace {

using testing::Documents;
using testing::numbered_documents;
using testing::TestDirectory;

TEST(Targets, CountAndFillAgreeWithAMaskTokenByToken) {
  std::mt19937 engine(1);
  const auto random = [&engine] { return static_cast<std::uint32_t>(engine()); };
  for (int round = 0; round < 300; ++round) {
    const std::uint32_t length = 1 + random() % 40;
    std::vector<Span> spans;
    std::vector<bool> mask(length);
    for (std::uint32_t at = random() % 5; at < length; at += 1 + random() % 6) {
      const std::uint32_t end = std::min<std::uint32_t>(length, at + 1 + random() % 6);
      spans.push_back({at, end});
      for (; at < end; ++at) mask[at] = true;
    }
    const std::uint32_t begin = random() % length;
    const std::uint32_t piece = 1 + random() % (length - begin);
    std::vector<std::int64_t> ids(piece);
    for (std::size_t i = 0; i < piece; ++i) ids[i] = 1000 + static_cast<std::int64_t>(begin + i);
    std::vector<std::int64_t> targets(piece, -100);

    const std::int64_t count = fill_targets(spans, begin, ids, targets);

    ASSERT_EQ(count, count_targets(spans, begin, piece));
    std::int64_t expected = 0;
    for (std::uint32_t i = 0; i < piece; ++i) {
      const bool predicts = i + 1 < piece && mask[begin + i + 1];
      expected += predicts;
      ASSERT_EQ(targets[i], predicts ? ids[i + 1] : -100);
    }
    ASSERT_EQ(count, expected);
  }
}

/// A data set with a mask: in each document, every third pair of tokens is a target.
class SftSet : public ::testing::Test {
 protected:
  explicit SftSet(const std::string& kind = "sft", const std::string& stored_as = "")
      : documents_(numbered_documents(60, 40, 4)) {
    ShardContent content;
    for (const auto& document : documents_) {
      tokens_.insert(tokens_.end(), document.begin(), document.end());
      content.documents.offset.push_back(tokens_.size());
      content.documents.source.push_back(0);
      content.documents.source_offset.push_back(0);
      content.documents.text_xxh3.push_back(0);
      std::vector<Span> spans;
      for (std::uint32_t at = 1; at + 2 <= document.size(); at += 6) spans.push_back({at, at + 2});
      for (const Span& span : spans) {
        targets_.insert(document[span.begin]);
        targets_.insert(document[span.begin + 1]);
      }
      content.documents.targets.loss.add(spans);
    }
    content.documents.token_parts.push_back(testing::token_bytes(tokens_));
    content.meta.kind = kind;
    content.meta.stored_as = stored_as;
    content.meta.vocab_size = 65536;
    content.meta.identity = "test";
    content.meta.counts.documents = documents_.size();
    content.meta.counts.tokens = tokens_.size();
    content.packs.push_back(pack_documents(content.documents.offset, 64));
    count_span_targets(content.documents.targets.loss, content.packs[0]);
    content.meta.packs[64] = content.packs[0].num_sequences();
    write_shard(folder_.path(), content);
    Manifest manifest;
    manifest.kind = kind;
    manifest.stored_as = stored_as;
    manifest.identity = "test";
    manifest.vocab_size = 65536;
    manifest.seq_len = 64;
    manifest.config_json = "{}";
    const TokenShard shard = TokenShard::open(folder_.path() / schema::shard_name(0));
    manifest.shards.push_back({schema::shard_name(0), std::filesystem::file_size(shard.path()),
                               shard.frame().xxh3, shard.meta().counts, shard.meta().packs});
    manifest.counts = shard.meta().counts;
    write_file_atomic(folder_.path() / schema::kManifest, manifest.to_text());
  }

  TestDirectory folder_{"sft_set"};
  Documents documents_;
  std::vector<std::uint16_t> tokens_;
  std::set<std::int64_t> targets_;  // token numbers that are targets
};

/// Returns the number of targets of the whole set at the packing length.
std::int64_t count_samples_targets(const TokenSet& set) {
  const SampleSet samples(set, set.seq_len());
  std::vector<std::int64_t> indices(samples.size());
  std::iota(indices.begin(), indices.end(), 0);
  return count_sample_targets(samples, indices, SampleOrder(samples.size(), 3, true));
}

TEST_F(SftSet, BatchesHaveTheSpansAsTargetsAndNothingElse) {
  const TokenSet set = TokenSet::open(folder_.path());
  const SampleSet samples(set, 64);
  ASSERT_TRUE(samples.prepared());
  std::vector<std::int64_t> indices(samples.size());
  std::iota(indices.begin(), indices.end(), 0);
  const SampleOrder order(samples.size(), 3, true);

  const Batch batch = samples.make_batch(indices, order);

  std::set<std::int64_t> seen;
  for (std::size_t i = 0; i < batch.targets.size(); ++i) {
    if (batch.targets[i] == kIgnoreTarget) continue;
    EXPECT_EQ(batch.targets[i], batch.tokens[i] + 1);
    seen.insert(batch.targets[i]);
  }
  EXPECT_EQ(seen, targets_);
  EXPECT_EQ(batch.num_targets, static_cast<std::int64_t>(targets_.size()));
  EXPECT_EQ(count_sample_targets(samples, indices, order), batch.num_targets);
}

class StoredAsSft : public SftSet {
 protected:
  StoredAsSft() : SftSet("notes", "sft") {}
};

TEST_F(StoredAsSft, AKindOfItsOwnHasTheContentOfTheKindThatItNames) {
  const TokenSet set = TokenSet::open(folder_.path());
  EXPECT_EQ(set.kind(), "notes");
  EXPECT_EQ(&set.contents(), &set_content("sft"));
  EXPECT_EQ(&set.shard(0).contents(), &set_content("sft"));
  EXPECT_EQ(count_samples_targets(set), static_cast<std::int64_t>(targets_.size()));
}

TEST_F(SftSet, CountsTargetsAtOtherLengthsAsItFillsThem) {
  const TokenSet set = TokenSet::open(folder_.path());
  for (const std::int64_t seq_len : {2, 5, 16, 200}) {
    const SampleSet samples(set, seq_len);
    ASSERT_FALSE(samples.prepared());
    const SampleOrder order(samples.size(), 3, true);
    for (std::uint64_t i = 0; i < samples.size(); ++i) {
      const std::int64_t index[] = {static_cast<std::int64_t>(i)};
      const Batch batch = samples.make_batch(index, order);
      ASSERT_EQ(batch.num_targets, count_sample_targets(samples, index, order));
      ASSERT_EQ(batch.num_targets,
                std::count_if(batch.targets.begin(), batch.targets.end(), [&](std::int64_t id) {
                  return id != kIgnoreTarget && targets_.contains(id);
                }));
    }
  }
}

TEST_F(SftSet, ReadsSpansBackOneByOneAndAllAtOnce) {
  const TokenShard shard = TokenShard::open(folder_.path() / schema::shard_name(0));
  const SpanTable all = shard.target_spans();
  ASSERT_EQ(all.num_documents(), documents_.size());
  for (std::uint64_t doc = 0; doc < documents_.size(); ++doc) {
    const std::span<const Span> spans = all.of(doc);
    EXPECT_EQ(shard.target_spans(doc), std::vector<Span>(spans.begin(), spans.end()));
  }
}

TEST(Targets, PairsShareTheirPrompt) {
  const TestDirectory folder("pairs");
  const std::vector<std::uint16_t> tokens = {1, 2, 3, 10, 11, 20, 21, 22, 4, 12, 23};
  ShardContent content;
  content.documents.token_parts.push_back(testing::token_bytes(tokens));
  content.documents.offset = {0, 8, 11};
  content.documents.source = {0, 0};
  content.documents.source_offset = {0, 50};
  content.documents.text_xxh3 = {0, 0};
  content.documents.line = {0, 3};
  content.documents.targets.pairs.prompt_len = {3, 1};
  content.documents.targets.pairs.chosen_len = {2, 1};
  content.documents.targets.pairs.rejected_len = {3, 1};
  content.documents.targets.pairs.chosen.add(std::vector<Span>{{2, 5}});
  content.documents.targets.pairs.rejected.add(std::vector<Span>{{2, 3}, {4, 6}});
  content.documents.targets.pairs.chosen.add(std::vector<Span>{{1, 2}});
  content.documents.targets.pairs.rejected.add(std::vector<Span>{{1, 2}});
  content.meta.kind = "dpo";
  content.meta.vocab_size = 100;
  content.meta.counts.documents = 2;
  content.meta.counts.tokens = tokens.size();

  const TokenShard shard = TokenShard::open(write_shard(folder.path(), content));

  const Pair first = shard.pair(0);
  EXPECT_EQ(first.prompt_len, 3U);
  EXPECT_EQ(first.chosen.ids, (std::vector<std::int64_t>{1, 2, 3, 10, 11}));
  EXPECT_EQ(first.rejected.ids, (std::vector<std::int64_t>{1, 2, 3, 20, 21, 22}));
  EXPECT_EQ(first.chosen.targets, (std::vector<Span>{{2, 5}}));
  EXPECT_EQ(first.rejected.targets, (std::vector<Span>{{2, 3}, {4, 6}}));
  const Pair second = shard.pair(1);
  EXPECT_EQ(second.chosen.ids, (std::vector<std::int64_t>{4, 12}));
  EXPECT_EQ(second.rejected.ids, (std::vector<std::int64_t>{4, 23}));
  EXPECT_EQ(shard.pair_lengths().rejected_len, content.documents.targets.pairs.rejected_len);
  EXPECT_EQ(shard.document_lines(), content.documents.line);
}

TEST(Targets, RefusesSpansThatLeaveTheirDocument) {
  const TestDirectory folder("bad_spans");
  const std::vector<std::uint16_t> tokens = {1, 2, 3};
  ShardContent content;
  content.documents = {{testing::token_bytes(tokens)}, {0, 3}, {0}, {0}, {0}, {}, {}, {}};
  content.documents.targets.loss.add(std::vector<Span>{{1, 4}});
  content.meta.kind = "sft";
  content.meta.vocab_size = 100;
  content.meta.counts.documents = 1;
  content.meta.counts.tokens = 3;
  const TokenShard shard = TokenShard::open(write_shard(folder.path(), content));

  EXPECT_THROW(static_cast<void>(shard.target_spans(0)), Error);
  EXPECT_THROW(static_cast<void>(shard.target_spans()), Error);
}

}  // namespace
}  // namespace trireme::data
