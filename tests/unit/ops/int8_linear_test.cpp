#include "ops/int8_linear.hpp"

#include <ATen/Parallel.h>

#include <limits>

#include "ops/cpu/kernels.hpp"
#include "unit/ops/support.hpp"

namespace trireme::ops::testing {
namespace {

TEST(Int8Matrix, RoundsEachRowByItsOwnScale) {
  const at::Tensor w =
      at::tensor({-254.0F, 2.0F, 3.1F, 0.0F, 0.0F, 0.0F, 0.5F, 1.27F, -0.004F}).view({3, 3});

  const Int8Matrix matrix = to_int8(w);

  EXPECT_TRUE(matrix.scales.allclose(at::tensor({2.0F, 0.0F, 0.01F})));
  EXPECT_TRUE(
      matrix.values.equal(at::tensor({-127, 1, 2, 0, 0, 0, 50, 127, 0}, at::kChar).view({3, 3})));
  EXPECT_EQ(matrix.bytes(), 9 + 12);
  EXPECT_EQ(from_int8(matrix, at::kDouble)[0][0].item<double>(), -254.0);
}

TEST(Int8Matrix, ErrorsAreAtMostHalfAScale) {
  at::manual_seed(1);
  const at::Tensor w = at::randn({2, 7, 100});

  const Int8Matrix matrix = to_int8(w);

  const at::Tensor errors = (from_int8(matrix, at::kFloat) - w).abs().amax(-1);
  EXPECT_TRUE((errors <= matrix.scales * 0.5001).all().item<bool>());
  const Int8Matrix second = matrix.at_index(1);
  EXPECT_TRUE(second.values.equal(matrix.values[1]) && second.scales.equal(matrix.scales[1]));
}

TEST(Int8Matrix, ARowThatIsNotFiniteGivesNoFiniteResult) {
  at::Tensor w = at::ones({3, 32});
  w[1][4] = std::numeric_limits<float>::quiet_NaN();
  w[2][4] = std::numeric_limits<float>::infinity();
  for (const Path path : {Path::fast, Path::plain}) {
    const at::Tensor y = inference_linear(at::ones({1, 32}), to_int8(w), path)[0];
    EXPECT_TRUE(y.isfinite().to(at::kInt).equal(at::tensor({1, 0, 0}, at::kInt))) << y;
  }
}

/// Returns the largest error of each element of y if the kernel rounds x to fixed point: half a
/// step of the row of x times the sum of the absolute values of the row of W, in fp64.
at::Tensor fixed_point_errors(const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor steps = x.abs().amax(1, /*keepdim=*/true) / 32639;
  return steps * 0.5 * w.abs().sum(1);
}

void expect_within(const at::Tensor& actual, const at::Tensor& expected, const at::Tensor& errors,
                   const std::string& what) {
  const at::Tensor excess = (actual.to(at::kDouble) - expected).abs() - errors;
  EXPECT_TRUE(excess.le(0).all().item<bool>()) << what << ", excess " << excess.max();
}

TEST(Int8Linear, IsTheProductWithTheRoundedMatrix) {
  at::manual_seed(5);
  for (const Case& c : rounding_cases()) {
    for (const std::int64_t in : {1, 7, 31, 64, 100, 129, 5000}) {
      for (const std::int64_t out : {1, 3, 4, 77}) {
        for (const std::int64_t rows : {0, 1, 2, 6, 7, 50}) {
          const at::Tensor x = at::randn({rows, in}, at::kDouble).to(c.dtype);
          const Int8Matrix w = to_int8(at::randn({out, in}));
          const at::Tensor wide_x = x.to(at::kDouble);
          const at::Tensor wide_w = from_int8(w, at::kDouble);
          const at::Tensor expected = wide_x.matmul(wide_w.t());
          const at::Tensor y = inference_linear(x, w, c.path);
          EXPECT_EQ(y.scalar_type(), c.dtype);
          const at::Tensor wide = inference_linear_wide(x, w, c.path);
          EXPECT_EQ(wide.scalar_type(), c.dtype == at::kDouble ? at::kDouble : at::kFloat);
          const at::Tensor sizes = wide_x.abs().matmul(wide_w.abs().t());
          at::Tensor errors = sizes * (c.dtype == at::kDouble ? 1e-14 : 2e-6);
          if (c.path == Path::fast && c.dtype != at::kDouble)
            errors = errors + fixed_point_errors(wide_x, wide_w);
          expect_within(wide, expected, errors, name(c) + " wide");
          const double rounding = c.dtype == at::kBFloat16 ? 0x1p-8 : 0;
          expect_within(y, expected, errors + (expected.abs() + errors) * rounding, name(c));
        }
      }
    }
  }
}

TEST(Int8Linear, RoundsRowsOfXToSteps) {
  if (!kernels::has_vnni() || kernels::table().fixed_linear_rows == nullptr)
    GTEST_SKIP() << "this CPU has no AVX-512 VNNI";
  // A step is 1. The second number is rounded to the nearest step, the last one to the even one.
  const at::Tensor x = at::tensor({-32639.0F, 100.4F, -255.6F, 128.0F, 0.5F}).unsqueeze(0);
  const Int8Matrix w = to_int8(at::eye(5) * 127);

  EXPECT_TRUE(inference_linear(x, w).allclose(
      at::tensor({-32639.0F, 100.0F, -256.0F, 128.0F, 0.0F}).unsqueeze(0) * 127, 1e-6, 0));
}

TEST(Int8Linear, NumbersOfWThatAreZeroAddNoError) {
  for (const std::int64_t in : {64, 1000, 14336, 65536}) {
    const at::Tensor x = at::ones({3, in});
    at::Tensor dense = at::zeros({5, in});
    dense.select(1, in / 2).fill_(127);
    EXPECT_TRUE(inference_linear(x, to_int8(dense)).allclose(at::full({3, 5}, 127.0F), 1e-6, 0));
  }
}

TEST(Int8Linear, ARowWithAnElementFarAboveTheOthersIsNotRounded) {
  at::manual_seed(8);
  const Int8Matrix w = to_int8(at::randn({9, 4096}).index_fill_(1, at::tensor({7}, at::kLong), 0));
  const at::Tensor wide_w = from_int8(w, at::kDouble);
  at::Tensor x = at::randn({5, 4096});
  const at::Tensor before = inference_linear(x, w);
  x.select(1, 7).slice(0, 1, 4).fill_(5000);  // three rows of five
  const at::Tensor y = inference_linear(x, w);

  expect_close(y, x.to(at::kDouble).matmul(wide_w.t()), 1e-4, "all rows");
  for (const std::int64_t row : {0, 4}) EXPECT_TRUE(y[row].equal(before[row])) << row;
  EXPECT_TRUE(inference_linear(x.narrow(0, 2, 1), w)[0].equal(y[2]));
}

TEST(Int8Linear, LongRowsOfLargestNumbersDoNotOverflow) {
  for (const std::int64_t in : {4097, 65536, 70000}) {
    const at::Tensor x = at::stack({at::full({in}, 3.0), at::full({in}, -3.0)}).to(at::kFloat);
    const Int8Matrix w = to_int8(at::stack({at::ones({in}), -at::ones({in})}));
    const double size = 3.0 * static_cast<double>(in);
    const at::Tensor expected = at::tensor({size, -size, -size, size}).view({2, 2});
    EXPECT_TRUE(inference_linear(x, w).to(at::kDouble).allclose(expected, 1e-5, 0)) << in;
  }
}

TEST(Int8Linear, ARowOfXThatIsNotFiniteChangesNoOther) {
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    at::Tensor x = at::ones({5, 40}, dtype);
    x[0].slice(0, 5, 40).fill_(std::numeric_limits<float>::quiet_NaN());
    x[1].slice(0, 0, 2).fill_(std::numeric_limits<float>::infinity());
    x[3].zero_();
    x[4].fill_(1e-38F);
    const at::Tensor y = inference_linear(x, to_int8(at::ones({2, 40}))).to(at::kFloat);
    EXPECT_FALSE(y.narrow(0, 0, 2).isfinite().any().item<bool>()) << y;
    const at::Tensor expected = at::tensor({40.0F, 0.0F, 40 * 1e-38F}).unsqueeze(1);
    EXPECT_TRUE(y.narrow(0, 2, 3).allclose(expected, 1e-2, 0)) << y;
  }
}

TEST(Int8Linear, ARowHasTheSameBitsWhateverElseThereIs) {
  at::manual_seed(6);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    for (const std::int64_t in : {96, 100}) {
      const at::Tensor x = at::randn({131, in}).to(dtype);
      const Int8Matrix w = to_int8(at::randn({45, in}));
      const at::Tensor all = inference_linear(x, w);
      for (const std::int64_t count : {1, 2, 3, 6, 7, 48, 49, 100}) {
        const at::Tensor some = inference_linear(x.narrow(0, 131 - count, count), w);
        EXPECT_TRUE(some.equal(all.narrow(0, 131 - count, count))) << count << " rows";
      }
      at::set_num_threads(2);
      EXPECT_TRUE(inference_linear(x, w).equal(all)) << "threads";
      at::set_num_threads(1);
    }
  }
}

TEST(Int8Linear, TakesColumnsOfALargerTensor) {
  at::manual_seed(7);
  const at::Tensor x = at::randn({5, 64}).narrow(1, 16, 32);
  const Int8Matrix w = to_int8(at::randn({9, 32}));

  EXPECT_TRUE(inference_linear(x, w).equal(inference_linear(x.contiguous(), w)));
}

}  // namespace
}  // namespace trireme::ops::testing
