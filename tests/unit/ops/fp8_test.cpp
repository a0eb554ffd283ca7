#include "ops/fp8.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace trireme::ops::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Format {
  at::ScalarType type;
  int mantissa_bits;
  int bias;
  double largest;
  bool has_infinity;  // e4m3 has only NaN among its special codes
};

constexpr Format kFormats[] = {{at::kFloat8_e4m3fn, 3, 7, 448, false},
                               {at::kFloat8_e5m2, 2, 15, 57344, true}};

/// Returns the value of a code by the definition of the format.
double value_of(int code, const Format& format) {
  const int ones = 1 << format.mantissa_bits;
  const int exponent = (code & 0x7f) >> format.mantissa_bits;
  const int mantissa = code & (ones - 1);
  const double sign = (code & 0x80) != 0 ? -1 : 1;
  const int highest = (1 << (7 - format.mantissa_bits)) - 1;
  if (exponent == highest && format.has_infinity) return mantissa == 0 ? sign * kInfinity : kNan;
  if (exponent == highest && mantissa == ones - 1) return kNan;
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - format.bias - format.mantissa_bits);
  return sign * std::ldexp(ones + mantissa, exponent - format.bias - format.mantissa_bits);
}

/// Returns the finite values of codes 0, 1, ...: an ascending table.
std::vector<double> positive_values(const Format& format) {
  std::vector<double> values;
  for (int code = 0; code < 128 && std::isfinite(value_of(code, format)); ++code)
    values.push_back(value_of(code, format));
  return values;
}

/// Returns the nearest value of the table, the one with the even code at a tie.
double rounded(double x, const std::vector<double>& table) {
  std::size_t best = 0;
  for (std::size_t code = 1; code < table.size(); ++code) {
    const double nearer = std::abs(table[best] - std::abs(x)) - std::abs(table[code] - std::abs(x));
    if (nearer > 0 || (nearer == 0 && code % 2 == 0)) best = code;
  }
  return std::copysign(table[best], x);
}

at::Tensor column(const std::vector<double>& values) {
  return at::tensor(values, at::kDouble).to(at::kFloat).unsqueeze(1);
}

std::vector<double> quantized(const std::vector<double>& values, const Format& format) {
  const Fp8Matrix matrix = quantize_fp8(column(values), at::ones({}), format.type);
  const at::Tensor decoded = matrix.codes.to(at::kDouble).flatten();
  return {decoded.const_data_ptr<double>(), decoded.const_data_ptr<double>() + decoded.numel()};
}

TEST(Fp8, AllCodesHaveTheValuesOfTheirFormat) {
  for (const Format& format : kFormats) {
    const at::Tensor decoded =
        at::arange(256, at::kLong).to(at::kByte).view(format.type).to(at::kDouble);
    for (int code = 0; code < 256; ++code) {
      const double expected = value_of(code, format);
      const double value = decoded[code].item<double>();
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(value)) << code;
      } else {
        EXPECT_EQ(value, expected) << code;
      }
    }
    EXPECT_EQ(positive_values(format).back(), format.largest);
  }
}

TEST(Fp8, RoundsToTheNearestCodeAndTiesToEvenCodes) {
  for (const Format& format : kFormats) {
    const std::vector<double> table = positive_values(format);
    std::vector<double> values = table;
    for (std::size_t i = 0; i + 1 < table.size(); ++i) {
      const double middle = (table[i] + table[i + 1]) / 2;
      for (const double x : {middle, middle * (1 - 1e-6), middle * (1 + 1e-6)}) {
        values.push_back(x);
        values.push_back(-x);
      }
    }
    const std::vector<double> results = quantized(values, format);
    for (std::size_t i = 0; i < values.size(); ++i)
      EXPECT_EQ(results[i], rounded(static_cast<float>(values[i]), table)) << values[i];
  }
}

TEST(Fp8, SaturatesAndKeepsNan) {
  for (const Format& format : kFormats) {
    const double largest = format.largest;
    const std::vector<double> results =
        quantized({largest * 1.01, largest * 1.07, 1e9, kInfinity, -kInfinity, -1e9, kNan}, format);
    EXPECT_EQ(std::vector<double>(results.begin(), results.end() - 1),
              (std::vector<double>{largest, largest, largest, largest, -largest, -largest}));
    EXPECT_TRUE(std::isnan(results.back()));
  }
}

TEST(Fp8, ScalesMapTheLargestValueToTheLargestCode) {
  const auto scale = [](double amax, at::ScalarType format, bool power = false) {
    return fp8_scale(at::full({}, amax, at::kFloat), format, power).item<double>();
  };
  EXPECT_EQ(scale(7, at::kFloat8_e4m3fn), 64);
  EXPECT_EQ(scale(7, at::kFloat8_e5m2), 8192);
  EXPECT_EQ(scale(3, at::kFloat8_e4m3fn, true), 128);  // 149.3, rounded down
  EXPECT_EQ(scale(7, at::kFloat8_e4m3fn, true), 64);
  EXPECT_EQ(scale(0, at::kFloat8_e4m3fn), static_cast<float>(448 / 1e-12));
  for (const bool power : {false, true}) {
    EXPECT_EQ(scale(kInfinity, at::kFloat8_e4m3fn, power), 0);
    EXPECT_TRUE(std::isnan(scale(kNan, at::kFloat8_e4m3fn, power)));
  }
}

TEST(Fp8, AmaxIsThatOfTheMatrixOrOfEachRow) {
  const at::Tensor x =
      at::tensor({1.0, -5.0, 2.0, -0.5, 0.0, 0.25}, at::kDouble).to(at::kBFloat16).view({2, 3});

  EXPECT_EQ(amax_of(x).item<double>(), 5);
  EXPECT_TRUE(row_amax_of(x).equal(column({5, 0.5})));
  EXPECT_TRUE(row_amax_of(x.t()).equal(column({1, 5, 2})));
  EXPECT_TRUE(std::isnan(amax_of(x / 0 * 0).item<double>()));
}

TEST(Fp8, NonFiniteValuesMakeTheProductNonFinite) {
  for (const double bad : {kInfinity, kNan}) {
    at::Tensor x = at::ones({4, 16});
    x[1][3] = bad;
    const Fp8Matrix ones = quantize_fp8(at::ones({4, 16}), at::ones({}), at::kFloat8_e4m3fn);
    const at::Tensor by_tensor =
        fp8_product(quantize_fp8(x, fp8_scale(amax_of(x), at::kFloat8_e4m3fn), at::kFloat8_e4m3fn),
                    ones, at::kFloat, false);
    const at::Tensor by_row = fp8_product(
        quantize_fp8(x, fp8_scale(row_amax_of(x), at::kFloat8_e4m3fn, true), at::kFloat8_e4m3fn),
        ones, at::kFloat, false);
    EXPECT_TRUE(by_tensor[1].isnan().all().item<bool>());
    EXPECT_TRUE(by_row[1].isnan().all().item<bool>());
    EXPECT_TRUE(by_row[0].isfinite().all().item<bool>());
  }
}

/// The reference and the values of the codes in fp64.
TEST(Fp8, ProductsAreThoseOfTheCodes) {
  at::manual_seed(3);
  const at::Tensor a = at::randn({19, 48}) * 7;
  const at::Tensor b = at::randn({32, 48});
  for (const at::ScalarType format : {at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    for (const bool by_row : {false, true}) {
      const auto scaled = [&](const at::Tensor& x, at::ScalarType of) {
        return quantize_fp8(x, fp8_scale(by_row ? row_amax_of(x) : amax_of(x), of, by_row), of);
      };
      const Fp8Matrix left = scaled(a, format);
      const Fp8Matrix right = scaled(b, at::kFloat8_e4m3fn);
      const auto values = [](const Fp8Matrix& x) {
        return x.codes.to(at::kDouble) * x.inverse_scale.to(at::kDouble);
      };
      const at::Tensor exact = values(left).mm(values(right).t());
      const at::Tensor product = fp8_product(left, right, at::kFloat, false);
      EXPECT_LE((product - exact).abs().max().item<double>(),
                1e-6 * exact.abs().max().item<double>());
      // bf16 keeps 8 bits, and e5m2 with 2 bits of mantissa rounds by 1/8 at most.
      const at::Tensor short_product = fp8_product(left, right, at::kBFloat16, false);
      EXPECT_EQ(short_product.scalar_type(), at::kBFloat16);
      EXPECT_TRUE(short_product.equal(product.to(at::kBFloat16)));
      const double apart =
          (exact - a.to(at::kDouble).mm(b.to(at::kDouble).t())).norm().item<double>();
      EXPECT_LE(apart, (format == at::kFloat8_e5m2 ? 0.125 : 0.0625) * exact.norm().item<double>());
      EXPECT_GT(apart, 0);
    }
  }
}

/// LibTorch multiplies tensors with one scale on a CPU, too, so the arguments for a GPU are checked
/// as far as a CPU can.
TEST(Fp8, ProductsEqualThoseOfLibTorchsOperator) {
  at::manual_seed(5);
  const auto scaled = [](const at::Tensor& x, at::ScalarType format) {
    return quantize_fp8(x, fp8_scale(amax_of(x), format), format);
  };
  const Fp8Matrix grads = scaled(at::randn({32, 48}) * 1e-4, at::kFloat8_e5m2);
  const Fp8Matrix weights = scaled(at::randn({64, 48}), at::kFloat8_e4m3fn);
  const at::Tensor operators = at::_scaled_mm(grads.codes, weights.codes.t(), grads.inverse_scale,
                                              weights.inverse_scale, {}, {}, at::kFloat, false);
  const at::Tensor product = fp8_product(grads, weights, at::kFloat, false);
  EXPECT_LE((product - operators).abs().max().item<double>(),
            1e-6 * operators.abs().max().item<double>());
}

TEST(Fp8, QuantizesTransposedViewsAsTheirCopies) {
  at::manual_seed(7);
  const at::Tensor x = at::randn({24, 40});
  const at::Tensor scale = at::full({}, 16.0, at::kFloat);
  const Fp8Matrix of_view = quantize_fp8(x.t(), scale, at::kFloat8_e4m3fn);
  const Fp8Matrix of_copy = quantize_fp8(x.t().contiguous(), scale, at::kFloat8_e4m3fn);
  EXPECT_TRUE(of_view.codes.is_contiguous());
  EXPECT_TRUE(of_view.codes.view(at::kByte).equal(of_copy.codes.view(at::kByte)));
}

TEST(Fp8, NamesADeviceThatCannotMultiplyInFp8) {
  EXPECT_EQ(
      fp8_device_mistake("delayed", "NVIDIA A100-SXM4-80GB", 80),
      "train.fp8 = delayed needs a GPU of compute capability 8.9 or later (Ada, Hopper, Blackwell), but NVIDIA A100-SXM4-80GB has 8.0. Set train.fp8 = off, or use another GPU.");
  EXPECT_EQ(fp8_device_mistake("off", "NVIDIA A100-SXM4-80GB", 80), "");
  EXPECT_EQ(fp8_device_mistake("rowwise", "NVIDIA L4", 89), "");
  EXPECT_EQ(fp8_device_mistake("rowwise", "a CPU", cuda_capability(at::kCPU)), "");
}

}  // namespace
}  // namespace trireme::ops::testing
