#include "core/unique_handle.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

namespace trireme {
namespace {

std::vector<int> closed;

struct Traits {
  using Raw = int;

  static Raw null() noexcept { return -1; }

  static void close(Raw raw) noexcept { closed.push_back(raw); }
};

using Handle = UniqueHandle<Traits>;

TEST(UniqueHandle, ClosesOnceAndNeverNull) {
  closed.clear();
  {
    const Handle one(1);
    const Handle none;
    EXPECT_TRUE(one);
    EXPECT_FALSE(none);
  }

  EXPECT_EQ(closed, std::vector<int>{1});
}

TEST(UniqueHandle, AMoveClosesTheOldOne) {
  closed.clear();
  Handle first(1);
  Handle second(2);
  first = std::move(second);

  EXPECT_EQ(closed, std::vector<int>{1});
  EXPECT_EQ(first.get(), 2);
}

TEST(UniqueHandle, AMoveToItselfKeepsTheHandle) {
  closed.clear();
  Handle handle(1);
  Handle& same = handle;
  handle = std::move(same);

  EXPECT_EQ(handle.get(), 1);
  EXPECT_TRUE(closed.empty());
}

TEST(UniqueHandle, ReleaseGivesUpOwnership) {
  closed.clear();
  Handle handle(5);

  EXPECT_EQ(handle.release(), 5);
  EXPECT_FALSE(handle);
  handle.reset(6);
  handle.reset();
  EXPECT_EQ(closed, std::vector<int>{6});
}

TEST(UniqueHandle, CannotBeCopied) {
  EXPECT_FALSE(std::is_copy_constructible_v<Handle>);
  EXPECT_FALSE(std::is_copy_assignable_v<Handle>);
  EXPECT_TRUE(std::is_nothrow_move_constructible_v<Handle>);
}

}  // namespace
}  // namespace trireme
