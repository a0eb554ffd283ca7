#include <gtest/gtest.h>

#include "core/error.hpp"
#include "data/order/stream.hpp"
#include "data/sequences/pack_documents.hpp"
#include "unit/data/small_set.hpp"
#include "unit/data/stream_fixture.hpp"

namespace trireme::data {
namespace {

using testing::kBatch;
using testing::Stream;

class StreamState : public Stream {
 protected:
  static std::string refusal(const SampleStream::State& values, const StreamConfig& config,
                             std::int64_t next_sample) {
    try {
      SampleStream::open(config).check_state(values, next_sample, "runs/x");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return "";
  }
};

TEST_F(StreamState, AppendedPhasesContinueAndKeepTheHash) {
  const std::int64_t stop = 20 * kBatch;
  const SampleStream before = open("$a; from 50: $b");
  const auto values = before.state(stop);

  EXPECT_EQ(refusal(values, config("$a"), stop), "");
  EXPECT_EQ(refusal(values, config("$a; from 21: 1 $b + 1 $a"), stop), "");
  EXPECT_EQ(refusal(values, config("$a; from 21 at 40: 1 $c"), stop), "");
  EXPECT_EQ(open("$a; from 21: 1 $b + 1 $a").content_hash(), before.content_hash());
  EXPECT_NE(refusal(values, config("$a; from 20: 1 $b + 1 $a"), stop).find("phases"),
            std::string::npos)
      << "it would have begun before the checkpoint";
}

TEST_F(StreamState, ChangedDataIsRefusedByName) {
  const std::int64_t stop = 20 * kBatch;
  const auto values = open("7 $a + 3 $b; from 11: $b").state(stop);

  EXPECT_EQ(refusal(values, config("0.7 $a + 0.3 $b; from 11: $b"), stop), "");
  EXPECT_NE(refusal(values, config("7 $a + 3 $c; from 11: $c"), stop).find("source 2"),
            std::string::npos);
  EXPECT_NE(refusal(values, config("6 $a + 4 $b; from 11: $b"), stop).find("sources of phase 1"),
            std::string::npos);
  EXPECT_NE(refusal(values, config("7 $a + 3 $b; from 12: $b"), stop).find("begin of phase 2"),
            std::string::npos);
  EXPECT_NE(refusal(values, config("7 $a + 3 $b; from 11 at 32: $b"), stop).find("seq_len"),
            std::string::npos);
  StreamConfig other = config("7 $a + 3 $b; from 11: $b");
  other.blend_rule = BlendRule::megatron;
  EXPECT_NE(refusal(values, other, stop).find("blend_rule"), std::string::npos);
  other = config("7 $a + 3 $b; from 11: $b");
  other.split = "9,1";
  EXPECT_NE(refusal(values, other, stop).find("data.split"), std::string::npos);
  other.split = "";
  other.packing = Packing::concat;
  EXPECT_NE(refusal(values, other, stop).find("data.packing"), std::string::npos);
}

TEST_F(StreamState, PackedByAnotherRuleIsRefusedUnlessPackPreparedIt) {
  const std::int64_t stop = 20 * kBatch;
  auto values = open("$a; from 10 at 40: $a").state(stop);
  std::string& plan = *values.plan;
  const std::string rule = cat(R"(,"packing_rule":)", kPackingRule);
  const std::size_t place = plan.find(rule);
  ASSERT_NE(place, std::string::npos);
  EXPECT_EQ(plan.find(rule, place + 1), std::string::npos) << "the first phase was prepared";
  EXPECT_EQ(refusal(values, config("$a; from 10 at 40: $a"), stop), "");

  plan.erase(place, rule.size());  // the format before rules had numbers

  EXPECT_NE(refusal(values, config("$a; from 10 at 40: $a"), stop)
                .find("packing_rule of phase 2 of data.path is 2, the checkpoint has 1"),
            std::string::npos);
  EXPECT_EQ(open("$a").state(stop).plan->find("packing_rule"), std::string::npos);
  const SampleStream::State older{TokenSet::open(at("a")).content_hash(), std::nullopt};
  StreamConfig unprepared = config("$a");
  unprepared.seq_len = 40;
  EXPECT_NE(refusal(older, unprepared, stop).find("packing_rule"), std::string::npos);
}

TEST_F(StreamState, FromOlderCheckpointsIsTheHashOfTheSet) {
  const SampleStream::State older{TokenSet::open(at("a")).content_hash(), std::nullopt};

  EXPECT_EQ(refusal(older, config("$a"), 99 * kBatch), "");
  EXPECT_EQ(refusal(older, config("$a; from 100: $b"), 99 * kBatch), "");
  EXPECT_NE(refusal(older, config("$b"), 99 * kBatch).find("other tokens"), std::string::npos);
  EXPECT_NE(refusal(older, config("1 $a + 1 $b"), 99 * kBatch), "");
  EXPECT_NE(refusal(older, config("$a; from 50: $b"), 99 * kBatch), "");
}

}  // namespace
}  // namespace trireme::data
