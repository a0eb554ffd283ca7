#include "core/error.hpp"

#include <gtest/gtest.h>

#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

TEST(Error, KindsHaveTheDocumentedExitCodes) {
  EXPECT_EQ(exit_code(ErrorKind::internal), 1);
  EXPECT_EQ(exit_code(ErrorKind::usage), 2);
  EXPECT_EQ(exit_code(ErrorKind::data), 3);
  EXPECT_EQ(exit_code(ErrorKind::resource), 4);
  EXPECT_EQ(exit_code(ErrorKind::comm), 5);
  EXPECT_EQ(exit_code(ErrorKind::numeric), 6);
}

TEST(Error, FailJoinsItsArguments) {
  const Error error = error_of([] { fail(ErrorKind::data, "row {} of {}", 3, std::string("x")); });

  EXPECT_EQ(error.kind(), ErrorKind::data);
  EXPECT_STREQ(error.what(), "row 3 of x");
}

TEST(Error, MessagesKeepBracesAndTextAroundTheirPlaces) {
  EXPECT_EQ(formatted("plain"), "plain");
  EXPECT_EQ(formatted("{}{}", 1, "a{}"), "1a{}");
  EXPECT_EQ(formatted("{{\"key\": {}}}", 1.5), "{\"key\": 1.5}");
  EXPECT_EQ(formatted("{{}}"), "{}");
}

TEST(Error, AnAssertionNamesConditionAndPlace) {
  const Error error = error_of([] { TRIREME_ASSERT(1 + 1 == 3); });

  EXPECT_EQ(error.kind(), ErrorKind::internal);
  EXPECT_TRUE(contains(error.what(), "1 + 1 == 3"));
  EXPECT_TRUE(contains(error.what(), "error_test.cpp:"));
}

TEST(Error, AnAssertionThatHoldsDoesNothing) {
  EXPECT_NO_THROW(TRIREME_ASSERT(true));
}

}  // namespace
}  // namespace trireme
