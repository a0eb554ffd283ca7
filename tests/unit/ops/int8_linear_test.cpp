#include "ops/int8_linear.hpp"

#include <ATen/Parallel.h>

#include <limits>

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

TEST(Int8Linear, IsTheProductWithTheRoundedMatrix) {
  at::manual_seed(5);
  for (const Case& c : rounding_cases()) {
    for (const std::int64_t in : {1, 7, 31, 64, 100, 129}) {
      for (const std::int64_t out : {1, 3, 4, 77}) {
        for (const std::int64_t rows : {0, 1, 2, 6, 7, 50}) {
          const at::Tensor x = at::randn({rows, in}, at::kDouble).to(c.dtype);
          const Int8Matrix w = to_int8(at::randn({out, in}));
          const at::Tensor expected = x.to(at::kDouble).matmul(from_int8(w, at::kDouble).t());
          const at::Tensor y = inference_linear(x, w, c.path);
          EXPECT_EQ(y.scalar_type(), c.dtype);
          expect_close(y, expected, c.tolerance, name(c));
          const at::Tensor wide = inference_linear_wide(x, w, c.path);
          EXPECT_EQ(wide.scalar_type(), c.dtype == at::kDouble ? at::kDouble : at::kFloat);
          expect_close(wide, expected, c.dtype == at::kDouble ? 1e-12 : 4e-6, name(c) + " wide");
        }
      }
    }
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
