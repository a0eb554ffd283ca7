#include "core/join.hpp"

#include <gtest/gtest.h>

namespace trireme {
namespace {

using Parts = std::vector<std::string>;

TEST(Join, PartsAndTextGoBothWays) {
  for (const Parts& parts : {Parts{""}, Parts{"a"}, Parts{"q", "", "a"}, Parts{"", ""}})
    EXPECT_EQ(split(joined(parts, ","), ','), parts);
  EXPECT_EQ(joined(Parts{}, ","), "");
  EXPECT_EQ(split("a,b", '|'), Parts{"a,b"});
  EXPECT_EQ(joined(std::vector{1, 2}, ", ", [](int number) { return number * 10; }), "10, 20");
}

}  // namespace
}  // namespace trireme
