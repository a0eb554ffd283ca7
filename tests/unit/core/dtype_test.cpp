#include "core/dtype.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace trireme {
namespace {

TEST(DType, NamesAndSizesAgreeWithTheEnumeration) {
  const std::size_t sizes[] = {8, 4, 2, 2, 8, 4, 2, 1, 8, 4, 2, 1};
  for (int i = 0; i < 12; ++i) {
    const auto dtype = static_cast<DType>(i);

    EXPECT_EQ(size_of(dtype), sizes[i]) << dtype_name(dtype);
    EXPECT_EQ(dtype_from_name(dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(dtype_name(DType::bf16), "bf16");
  EXPECT_EQ(dtype_name(DType::u8), "u8");
  EXPECT_FALSE(dtype_from_name("f8"));
}

float rounded(float value) {
  return from_bf16_bits(to_bf16_bits(value));
}

TEST(DType, Bf16RoundsToNearestAndTiesToEven) {
  EXPECT_EQ(rounded(1.0F), 1.0F);
  EXPECT_EQ(rounded(1.0F + 0x1p-8F), 1.0F);            // a tie: 1.0 is even
  EXPECT_EQ(rounded(1.0F + 0x3p-8F), 1.0F + 0x1p-6F);  // a tie that rounds up to even
  EXPECT_EQ(rounded(1.0F + 0x1p-8F + 0x1p-20F), 1.0F + 0x1p-7F);
  EXPECT_EQ(rounded(-(1.0F + 0x3p-8F)), -(1.0F + 0x1p-6F));
}

TEST(DType, Bf16KeepsSpecialValues) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();

  EXPECT_EQ(rounded(kInfinity), kInfinity);
  EXPECT_EQ(rounded(-kInfinity), -kInfinity);
  EXPECT_EQ(rounded(std::numeric_limits<float>::max()), kInfinity);
  EXPECT_TRUE(std::signbit(rounded(-0.0F)));
  EXPECT_TRUE(std::isnan(rounded(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_TRUE(std::isnan(
      rounded(__builtin_bit_cast(float, 0x7f800001U))));  // a NaN with the high bits of infinity
  EXPECT_TRUE(
      std::isnan(rounded(__builtin_bit_cast(float, 0x7fffffffU))));  // must not carry into the sign
}

TEST(DType, EveryBf16SurvivesTheTrip) {
  for (unsigned bits = 0; bits < 0x10000U; ++bits) {
    const float value = from_bf16_bits(static_cast<std::uint16_t>(bits));
    if (!std::isnan(value)) {
      ASSERT_EQ(to_bf16_bits(value), bits);
    }
  }
}

}  // namespace
}  // namespace trireme
