#include "ops/cuda/fp8.hpp"

#include <bit>
#include <limits>

#include "unit/ops/cuda/compare.hpp"

namespace trireme::ops::testing {
namespace {

using trireme::testing::HostLauncher;

constexpr at::ScalarType kFormats[] = {at::kFloat8_e4m3fn, at::kFloat8_e5m2};
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct MatrixShape {
  std::int64_t rows;
  std::int64_t width;
};

const std::vector<MatrixShape> kShapes{{1, 1},    {3, 7},     {64, 64},   {65, 63},  {16, 200},
                                       {130, 40}, {200, 136}, {17, 1032}, {129, 129}};

/// Returns positive fp32 scales [count, 1].
at::Tensor some_scales(std::int64_t count) {
  return random({count, 1}).exp().to(at::kFloat);
}

/// Returns values of all sizes, with zeros, NaN and infinities.
at::Tensor any_values(const MatrixShape& shape, at::ScalarType type) {
  at::Tensor x = random({shape.rows, shape.width}) * random({shape.rows, shape.width}).mul(6).exp();
  const at::Tensor flat = x.view({-1});
  const std::vector<float> special{0.0F, -0.0F, kInfinity, -kInfinity, NAN, 1e-30F, -1e30F};
  for (std::size_t i = 0; i < special.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i) * 5;
    if (place < flat.numel()) flat[place] = special[i];
  }
  return x.to(type);
}

void expect_same_codes(const Fp8Matrix& found, const Fp8Matrix& expected,
                       const std::string& label) {
  const std::int64_t columns = expected.codes.size(1);
  ASSERT_EQ(found.codes.size(0), expected.codes.size(0)) << label;
  ASSERT_GE(found.codes.size(1), columns) << label;
  EXPECT_TRUE(found.codes.is_contiguous()) << label;
  const at::Tensor bytes = found.codes.view(at::kByte);
  EXPECT_TRUE(bytes.narrow(1, 0, columns).equal(expected.codes.view(at::kByte))) << label;
  EXPECT_TRUE(bytes.narrow(1, columns, bytes.size(1) - columns).eq(0).all().item<bool>()) << label;
  EXPECT_TRUE(at::equal(found.inverse_scale, expected.inverse_scale)) << label;
}

/// Compares the codes of x by rows, by columns and both at once with the plain path.
void expect_plain_codes(const at::Tensor& x, const at::Tensor& row_scale,
                        const at::Tensor& column_scale, const std::string& label) {
  for (const at::ScalarType format : kFormats) {
    const Fp8Both plain = quantize_fp8_both(x, row_scale, column_scale, format, Path::plain);
    const Fp8Both both = cuda::quantize_fp8(x, row_scale, column_scale, format);
    expect_same_codes(both.by_rows, plain.by_rows, label + " rows of both");
    expect_same_codes(both.by_columns, plain.by_columns, label + " columns of both");
    expect_same_codes(cuda::quantize_fp8(x, row_scale, {}, format).by_rows, plain.by_rows,
                      label + " rows");
    expect_same_codes(cuda::quantize_fp8(x, {}, column_scale, format).by_columns, plain.by_columns,
                      label + " columns");
    expect_same_codes(cuda::quantize_fp8(x.t(), column_scale, {}, format).by_rows, plain.by_columns,
                      label + " transposed view");
  }
}

std::string label_of(const MatrixShape& shape, const std::string& label) {
  return label + std::to_string(shape.rows) + " x " + std::to_string(shape.width);
}

TEST(CudaFp8, CodesAreThoseOfThePlainPathForOddSizes) {
  at::manual_seed(1);
  for_cuda_cases([](const CudaCase& one, const std::string& label, const HostLauncher&) {
    for (const MatrixShape& shape : kShapes) {
      const at::Tensor x = any_values(shape, one.dtype);
      const at::Tensor scale = at::full({}, 37.5, at::kFloat);
      expect_plain_codes(x, scale, scale, label_of(shape, label + "one scale, "));
      expect_plain_codes(x, some_scales(shape.rows), some_scales(shape.width),
                         label_of(shape, label + "scales of rows, "));
      expect_plain_codes(x, scale, some_scales(shape.width),
                         label_of(shape, label + "scales of columns, "));
    }
  });
}

/// Returns fp32 values: every code, the middle of each pair of neighbours, and the next fp32 values
/// on both sides.
at::Tensor codes_and_middles(at::ScalarType format) {
  const at::Tensor all =
      at::arange(128, at::kLong).to(at::kByte).view(format).to(at::kFloat).contiguous();
  std::vector<float> values;
  for (std::int64_t i = 0; i < all.numel(); ++i) {
    const float value = all.const_data_ptr<float>()[i];
    const float next = i + 1 < all.numel() ? all.const_data_ptr<float>()[i + 1] : value;
    for (const float one : {value, (value + next) / 2}) {
      for (const float near : {std::nextafter(one, 0.0F), one, std::nextafter(one, kInfinity)}) {
        values.push_back(near);
        values.push_back(-near);
      }
    }
  }
  return at::tensor(values).view({1, -1});
}

TEST(CudaFp8, EveryCodeAndEveryTieIsRoundedLikeThePlainPath) {
  const HostLauncher host;
  const at::Tensor one = at::ones({});
  for (const at::ScalarType format : kFormats)
    expect_plain_codes(codes_and_middles(format), one, one, at::toString(format));
}

TEST(CudaFp8, AnyBitsOfANumberAreRoundedLikeThePlainPath) {
  at::manual_seed(2);
  const HostLauncher host;
  const at::Tensor bits = at::randint(0, std::int64_t{1} << 32, {64, 1024}, at::kLong);
  const at::Tensor wide = bits.to(at::kInt).view(at::kFloat);
  expect_plain_codes(wide, at::ones({}), at::ones({}), "fp32");
  const at::Tensor all = at::arange(std::int64_t{1} << 16, at::kInt).to(at::kShort).view({64, -1});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf})
    expect_plain_codes(all.view(type), at::full({}, 3.0), at::full({}, 3.0), at::toString(type));
}

TEST(CudaFp8, TakesRowsWithGapsAndUnalignedTensors) {
  at::manual_seed(3);
  const HostLauncher host;
  const at::Tensor scale = at::full({}, 8.0, at::kFloat);
  for (const at::ScalarType type : {at::kBFloat16, at::kFloat}) {
    const at::Tensor storage = random({70, 200}).to(type);
    expect_plain_codes(storage.narrow(1, 16, 128), scale, scale, "gaps");
    expect_plain_codes(storage.narrow(1, 3, 128), scale, scale, "unaligned");
    expect_plain_codes(storage.narrow(1, 16, 128).t(), scale, scale, "transposed with gaps");
    expect_plain_codes(storage.view({35, 2, 200}).select(1, 1).narrow(1, 0, 77), scale, scale,
                       "every second row");
    for (const at::Tensor& x : {storage.narrow(1, 16, 128), storage.narrow(1, 3, 128).t()}) {
      EXPECT_TRUE(cuda::fp8_amax(x).equal(amax_of(x, Path::plain)));
      EXPECT_TRUE(cuda::fp8_row_amax(x).equal(row_amax_of(x, Path::plain)));
    }
  }
}

TEST(CudaFp8, AmaxIsThatOfThePlainPath) {
  at::manual_seed(4);
  for_cuda_cases([](const CudaCase& one, const std::string& label, const HostLauncher&) {
    std::vector<MatrixShape> shapes = kShapes;
    shapes.push_back({1027, 3});   // several rows per block
    shapes.push_back({64, 2048});  // a view as long rows
    for (const MatrixShape& shape : shapes) {
      const at::Tensor x = random({shape.rows, shape.width}).to(one.dtype);
      const std::string name = label_of(shape, label);
      EXPECT_TRUE(cuda::fp8_amax(x).equal(amax_of(x, Path::plain))) << name;
      EXPECT_TRUE(cuda::fp8_amax(x.t()).equal(amax_of(x, Path::plain))) << name;
      EXPECT_TRUE(cuda::fp8_row_amax(x).equal(row_amax_of(x, Path::plain))) << name;
      EXPECT_TRUE(cuda::fp8_row_amax(x.t()).equal(row_amax_of(x.t(), Path::plain))) << name;
    }
  });
}

TEST(CudaFp8, AmaxTakesSeveralRowsPerBlock) {
  at::manual_seed(6);
  const HostLauncher host;
  const at::Tensor x = random({1027, 3}).to(at::kBFloat16);
  EXPECT_TRUE(cuda::fp8_amax(x).equal(amax_of(x, Path::plain)));
}

TEST(CudaFp8, AmaxKeepsNanAndInfinity) {
  const HostLauncher host;
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    for (const float bad : {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(),
                            -std::numeric_limits<float>::quiet_NaN()}) {
      const at::Tensor x = at::ones({70, 40}, type);
      x[61][21] = bad;
      x[61][22] = kInfinity;
      const auto expect = [](const at::Tensor& found, const at::Tensor& expected) {
        EXPECT_TRUE(found.isclose(expected, 0, 0, /*equal_nan=*/true).all().item<bool>());
      };
      expect(cuda::fp8_amax(x), amax_of(x, Path::plain));
      expect(cuda::fp8_row_amax(x), row_amax_of(x, Path::plain));
      expect(cuda::fp8_row_amax(x.t()), row_amax_of(x.t(), Path::plain));
    }
  }
}

TEST(CudaFp8, ScalesAreThoseOfThePlainPath) {
  at::manual_seed(5);
  const HostLauncher host;
  const at::Tensor some = (random({1000, 1}) * 20).exp().to(at::kFloat);
  const at::Tensor special = at::tensor({0.0F, 1e-13F, 1e-12F, 7.0F, 448.0F, 3e38F, kInfinity, NAN,
                                         std::nextafter(7.0F, 8.0F), std::nextafter(7.0F, 0.0F)})
                                 .unsqueeze(1);
  for (const at::Tensor& amax : {some, special, special[3][0]}) {
    for (const at::ScalarType format : kFormats) {
      for (const bool power_of_two : {false, true}) {
        const at::Tensor found = cuda::fp8_scale(amax, format, power_of_two);
        const at::Tensor expected = fp8_scale(amax, format, power_of_two, Path::plain);
        EXPECT_EQ(found.sizes(), expected.sizes());
        EXPECT_TRUE(found.isclose(expected, 0, 0, /*equal_nan=*/true).all().item<bool>());
      }
    }
  }
}

TEST(CudaFp8, PaddingIsZeroEvenIfTheScaleIsNan) {
  const HostLauncher host;
  const at::Tensor scale = at::full({}, NAN, at::kFloat);
  const Fp8Matrix found =
      cuda::quantize_fp8(at::ones({17, 5}), {}, scale, at::kFloat8_e4m3fn).by_columns;
  EXPECT_EQ(found.codes.sizes(), (std::vector<std::int64_t>{5, 32}));
  const at::Tensor bytes = found.codes.view(at::kByte);
  EXPECT_TRUE(bytes.narrow(1, 0, 17).bitwise_and(0x7f).eq(0x7f).all().item<bool>());
  EXPECT_TRUE(bytes.narrow(1, 17, 15).eq(0).all().item<bool>());
}

}  // namespace
}  // namespace trireme::ops::testing
