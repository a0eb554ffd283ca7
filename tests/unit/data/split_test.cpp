#include "data/sequences/split.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace trireme::data {
namespace {

/// The ends come from Python: round(sum of shares * D), shares = numbers / sum, like in Megatron.
TEST(Split, CutsWhereMegatronDoes) {
  const Split split = Split::parse("969,30,1", "data.split");

  EXPECT_EQ(split.part(SplitPart::train, 1000), (DocumentRange{0, 969}));
  EXPECT_EQ(split.part(SplitPart::valid, 1000), (DocumentRange{969, 999}));
  EXPECT_EQ(split.part(SplitPart::test, 1000), (DocumentRange{999, 1000}));
  EXPECT_EQ(split.part(SplitPart::train, 7), (DocumentRange{0, 7}));
  EXPECT_EQ(split.part(SplitPart::valid, 7), (DocumentRange{7, 7}));
  EXPECT_EQ(split.part(SplitPart::train, 12345), (DocumentRange{0, 11962}));
  EXPECT_EQ(split.part(SplitPart::valid, 12345), (DocumentRange{11962, 12333}));
}

TEST(Split, RoundsHalvesToEven) {
  const Split half = Split::parse("1,1", "data.split");

  EXPECT_EQ(half.part(SplitPart::train, 5).end, 2U);
  EXPECT_EQ(half.part(SplitPart::train, 7).end, 4U);
  EXPECT_EQ(half.part(SplitPart::test, 7), (DocumentRange{7, 7}));
}

TEST(Split, PartsCoverAllDocumentsOnce) {
  for (const char* text : {"969,30,1", "0.8, 0.1, 0.1", "1", "0,1,0", "1e-3,1,3", "99,1,0"}) {
    const Split split = Split::parse(text, "data.split");
    for (const std::uint64_t documents : {0ULL, 1ULL, 2ULL, 999ULL, 123456789ULL}) {
      const DocumentRange train = split.part(SplitPart::train, documents);
      const DocumentRange valid = split.part(SplitPart::valid, documents);
      const DocumentRange test = split.part(SplitPart::test, documents);
      EXPECT_EQ(train.begin, 0U);
      EXPECT_EQ(train.end, valid.begin);
      EXPECT_EQ(valid.end, test.begin);
      EXPECT_EQ(test.end, documents) << text;
    }
  }
}

TEST(Split, RefusesWhatIsNoSplit) {
  for (const char* text : {"", "a", "1,2,3,4", "1,,2", "-1,2", "0,0,0", "0", "1;2", "nan,1", "1,"})
    EXPECT_THROW(static_cast<void>(Split::parse(text, "data.split")), Error) << text;
}

}  // namespace
}  // namespace trireme::data
