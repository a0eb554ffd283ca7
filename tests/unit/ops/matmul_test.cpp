#include "ops/matmul.hpp"

#include <cmath>
#include <limits>

#include "ops/cpu/kernels.hpp"
#include "ops/product.hpp"
#include "unit/ops/support.hpp"
#include "unit/ops/thread_count.hpp"

namespace trireme::ops::testing {
namespace {

constexpr double kFp32Roundoff = 0x1p-24;
constexpr double kBf16Roundoff = 0x1p-8;

constexpr at::ScalarType kFactorTypes[] = {at::kFloat, at::kBFloat16};

/// A matrix inside a larger one that is NaN elsewhere, so that every read beyond the edges changes
/// the result.
at::Tensor framed_matrix(std::int64_t rows, std::int64_t columns, bool transposed,
                         at::ScalarType type) {
  const std::int64_t down = transposed ? columns : rows;
  const std::int64_t across = transposed ? rows : columns;
  const at::Tensor all =
      at::full({down + 2, across + 5}, std::numeric_limits<double>::quiet_NaN(), type);
  const at::Tensor part = all.narrow(0, 1, down).narrow(1, 3, across);
  part.copy_(random({down, across}));
  return transposed ? part.t() : part;
}

at::Tensor fp64_of(const at::Tensor& x) {
  return x.to(at::kDouble);
}

/// Checks every element against fp64. The bound is that of k additions in fp32 in any order, and of
/// one rounding to bf16.
void expect_product(const at::Tensor& actual, const at::Tensor& a, const at::Tensor& b,
                    const at::Tensor& before, const std::string& what) {
  const at::Tensor expected = fp64_of(a).mm(fp64_of(b)) + fp64_of(before);
  const at::Tensor sizes = fp64_of(a).abs().mm(fp64_of(b).abs()) + fp64_of(before).abs();
  const double additions = static_cast<double>(a.size(1)) + 2;
  at::Tensor bound = sizes * (additions * kFp32Roundoff);
  if (actual.scalar_type() == at::kBFloat16) bound += (expected.abs() + bound) * kBf16Roundoff;
  const at::Tensor excess = (fp64_of(actual) - expected).abs() - bound;
  EXPECT_TRUE(excess.le(0).all().item<bool>())
      << what << ", excess " << excess.max().item<double>();
}

struct MatmulTypes {
  at::ScalarType factors;
  at::ScalarType out;
};

std::vector<MatmulTypes> matmul_types() {
  std::vector<MatmulTypes> types;
  for (const at::ScalarType factors : kFactorTypes) {
    for (const at::ScalarType out : {at::kFloat, at::kBFloat16}) types.push_back({factors, out});
  }
  return types;
}

struct MatmulShape {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

class PackedMatmul : public ::testing::Test {
 protected:
  void SetUp() override {
    at::manual_seed(6);
    if (kernels::table().panel_products == nullptr) GTEST_SKIP() << "this CPU has no AVX-512";
  }
};

TEST_F(PackedMatmul, IsThatOfFp64UpToRoundingForEveryShapeAndLayout) {
  constexpr MatmulShape kShapes[] = {{1, 1, 1},    {1, 40, 3},    {11, 15, 2},  {12, 32, 64},
                                     {13, 33, 31}, {47, 17, 129}, {200, 65, 7}, {389, 100, 33}};
  for (const MatmulShape& shape : kShapes) {
    for (const bool a_transposed : {false, true}) {
      for (const bool b_transposed : {false, true}) {
        const std::string what = std::to_string(shape.m) + " x " + std::to_string(shape.n) + " x " +
                                 std::to_string(shape.k) + (a_transposed ? ", A^T" : "") +
                                 (b_transposed ? ", B^T" : "");
        for (const auto& [factors, type] : matmul_types()) {
          const at::Tensor a = framed_matrix(shape.m, shape.k, a_transposed, factors);
          const at::Tensor b = framed_matrix(shape.k, shape.n, b_transposed, factors);
          const at::Tensor whole = random({shape.m, shape.n + 3}).to(type);
          const at::Tensor before = whole.clone();
          const at::Tensor out = whole.narrow(1, 1, shape.n);
          packed_matmul(a, b, out, /*add=*/true);
          expect_product(out, a, b, before.narrow(1, 1, shape.n), what + ", added");
          packed_matmul(a, b, out, /*add=*/false);
          expect_product(out, a, b, at::zeros_like(out), what);
          for (const std::int64_t column : {std::int64_t{0}, shape.n + 1, shape.n + 2})
            EXPECT_TRUE(whole.select(1, column).equal(before.select(1, column))) << what;
        }
      }
    }
  }
}

TEST_F(PackedMatmul, DividesWideAndLargeProducts) {
  // The second shape is packed in two parts, and the third one has a temporary sum for bf16.
  constexpr MatmulShape kShapes[] = {{14, 34, 4099}, {25, 1100, 2048}, {5, 33, 8195}};
  for (const MatmulShape& shape : kShapes) {
    for (const auto& [factors, type] : matmul_types()) {
      const at::Tensor a = framed_matrix(shape.m, shape.k, true, factors);
      const at::Tensor b = framed_matrix(shape.k, shape.n, false, factors);
      const at::Tensor before = random({shape.m, shape.n}).to(type);
      const at::Tensor out = before.clone();
      packed_matmul(a, b, out, /*add=*/true);
      expect_product(out, a, b, before, std::to_string(shape.k) + ' ' + at::toString(type));
    }
  }
}

TEST_F(PackedMatmul, TakesFactorsAndResultsWithGaps) {
  for (const at::ScalarType factors : kFactorTypes) {
    const at::Tensor a = framed_matrix(30, 40, false, factors).slice(1, 0, 40, 2);
    const at::Tensor b =
        framed_matrix(40, 50, false, factors).slice(0, 0, 40, 2).slice(1, 0, 50, 2);
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kDouble}) {
      const at::Tensor before = random({25, 30}).to(type).t();
      const at::Tensor out = before.clone();
      packed_matmul(a, b, out, /*add=*/true);
      expect_product(out, a, b, before, at::toString(type));
    }
  }
}

TEST_F(PackedMatmul, HasTheSameBitsOnAnyNumberOfThreads) {
  for (const at::ScalarType factors : kFactorTypes) {
    const at::Tensor a = framed_matrix(501, 301, false, factors);
    const at::Tensor b = framed_matrix(301, 130, true, factors);
    const at::Tensor tall = framed_matrix(501, 2600, true, factors);
    const at::Tensor wide = framed_matrix(2600, 65, false, factors);
    std::vector<Tensors> results;
    for (const int count : {1, 2, 3, 7}) {
      const Threads threads(count);
      Tensors result{at::empty({501, 130}, at::kBFloat16), at::empty({501, 65}, at::kFloat)};
      packed_matmul(a, b, result[0], /*add=*/false);
      packed_matmul(tall, wide, result[1], /*add=*/false);
      results.push_back(std::move(result));
    }
    for (std::size_t i = 1; i < results.size(); ++i) {
      EXPECT_TRUE(results[i][0].equal(results[0][0]));
      EXPECT_TRUE(results[i][1].equal(results[0][1]));
    }
  }
}

/// Multiplies a [m, k] and b [k, n] with one kind of words of one instruction set: fp32 [m, n].
at::Tensor multiplied(const kernels::Table& table, kernels::PanelWords words, const at::Tensor& a,
                      bool a_transposed, const at::Tensor& b, bool b_transposed) {
  const std::int64_t m = a.size(0);
  const std::int64_t n = b.size(1);
  const std::int64_t k = a.size(1);
  const at::Tensor left = a_transposed ? a.t().contiguous() : a.contiguous();
  const at::Tensor right = b_transposed ? b.t().contiguous() : b.contiguous();
  const std::int64_t stride = (k + 1) * kernels::kPanelColumns;
  std::vector<std::uint32_t> panels(
      static_cast<std::size_t>((n / kernels::kPanelColumns + 1) * stride));
  std::vector<std::uint32_t> scratch(
      static_cast<std::size_t>((m + kernels::kPanelTileRows) * (k + kernels::kPanelColumns)));
  at::Tensor c = at::empty({m, n}, at::kFloat);
  table.pack_panels({.words = words,
                     .b = right.const_data_ptr(),
                     .b_stride = right.stride(0),
                     .b_transposed = b_transposed,
                     .width = k,
                     .columns = n,
                     .panels = panels.data(),
                     .panel_stride = stride});
  table.panel_products({.words = words,
                        .a = left.const_data_ptr(),
                        .a_stride = left.stride(0),
                        .a_transposed = a_transposed,
                        .panels = panels.data(),
                        .panel_stride = stride,
                        .c = c.data_ptr(),
                        .c_element = kernels::Element::f32,
                        .c_stride = n,
                        .add = false,
                        .rows = m,
                        .columns = n,
                        .width = k,
                        .next_rows = 0,
                        .scratch = scratch.data()});
  return c;
}

TEST_F(PackedMatmul, EveryInstructionSetMultipliesEveryKindOfWords) {
  using enum kernels::PanelWords;
  for (const kernels::Table* table : kernels::usable_tables()) {
    if (table->panel_products == nullptr) continue;
    for (const kernels::PanelWords words : {f32, widened, pairs}) {
      if (words == pairs && !table->multiplies_pairs) continue;
      const at::ScalarType type = words == f32 ? at::kFloat : at::kBFloat16;
      for (const bool a_transposed : {false, true}) {
        for (const bool b_transposed : {false, true}) {
          const at::Tensor a = random({31, 45}).to(type);
          const at::Tensor b = random({45, 70}).to(type);
          const at::Tensor c = multiplied(*table, words, a, a_transposed, b, b_transposed);
          expect_product(c, a, b, at::zeros_like(c),
                         std::string(table->name) + ", words " +
                             std::to_string(static_cast<int>(words)) +
                             (a_transposed ? ", A^T" : "") + (b_transposed ? ", B^T" : ""));
        }
      }
    }
  }
}

TEST_F(PackedMatmul, DoesNotRoundGradientsThatAreAddedToFp32) {
  const at::Tensor a = at::ones({2, 1}, at::kBFloat16);
  const at::Tensor b = at::tensor({1.0, 1.0 / 512}).to(at::kBFloat16).unsqueeze(1).repeat({1, 16});
  const at::Tensor sum = at::ones({1, 16}, at::kFloat);
  add_outer_product(a, b, sum);

  EXPECT_TRUE(sum.eq(2 + 1.0F / 512).all().item<bool>());  // bf16 has 8 bits
  EXPECT_TRUE(outer_product(a, b).eq(1 + 1.0F / 512).all().item<bool>());
}

TEST(PackedMatmulChoice, LeavesFp32ToLibTorchOnIntelOnly) {
  const at::Tensor x = at::ones({64, 64});
  const bool has_kernels = kernels::table().panel_products != nullptr;
  EXPECT_EQ(takes_packed_matmul(x, x), has_kernels && !kernels::is_intel());
  EXPECT_FALSE(takes_packed_matmul(x.narrow(0, 0, 15), x));  // too few rows to pay for packing
}

TEST(PackedMatmulChoice, TakesBf16UnlessLibTorchMultipliesItFast) {
  const at::Tensor x = at::ones({64, 64}, at::kBFloat16);
  const bool has_kernels = kernels::table().panel_products != nullptr;
  EXPECT_EQ(takes_packed_matmul(x, x),
            has_kernels && (kernels::table().multiplies_pairs || widens_products(x)));
}

TEST(PackedMatmulChoice, LeavesOtherDtypesAndEmptyOrNarrowFactorsToLibTorch) {
  for (const at::ScalarType type : {at::kHalf, at::kDouble})
    EXPECT_FALSE(takes_packed_matmul(at::ones({64, 64}, type), at::ones({64, 64}, type)));
  EXPECT_FALSE(
      takes_packed_matmul(at::ones({0, 64}, at::kBFloat16), at::ones({64, 64}, at::kBFloat16)));
  EXPECT_FALSE(
      takes_packed_matmul(at::ones({64, 0}, at::kBFloat16), at::ones({0, 64}, at::kBFloat16)));
  EXPECT_FALSE(
      takes_packed_matmul(at::ones({64, 64}, at::kBFloat16), at::ones({64, 8}, at::kBFloat16)));
}

}  // namespace
}  // namespace trireme::ops::testing
