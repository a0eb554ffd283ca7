#include "ops/grouped.hpp"

#include "unit/ops/support.hpp"

namespace trireme::ops::testing {
namespace {

/// Row counts with idle experts at both ends and between, an expert with a single row, and counts
/// that bf16 pads, before others and at the end, and counts that need no padding.
const std::vector<std::int64_t> kBounds{0, 0, 7, 8, 8, 40, 49, 49};
constexpr std::int64_t kRows = 49;
constexpr std::int64_t kIn = 24;
constexpr std::int64_t kOut = 16;

std::int64_t num_experts() {
  return static_cast<std::int64_t>(kBounds.size()) - 1;
}

at::Tensor ends() {
  return at::tensor(std::vector<std::int32_t>(kBounds.begin() + 1, kBounds.end()), at::kInt);
}

/// Returns the expert of each row.
std::int64_t expert_of(std::int64_t row) {
  std::int64_t expert = 0;
  while (kBounds[static_cast<std::size_t>(expert) + 1] <= row) ++expert;
  return expert;
}

at::Tensor product_row_by_row(const at::Tensor& rows, const at::Tensor& weights) {
  std::vector<at::Tensor> out;
  for (std::int64_t row = 0; row < kRows; ++row)
    out.push_back(weights[expert_of(row)].matmul(rows[row]));
  return at::stack(out);
}

at::Tensor outer_row_by_row(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor sums = at::zeros({num_experts(), kOut, kIn}, a.options());
  for (std::int64_t row = 0; row < kRows; ++row)
    sums[expert_of(row)].add_(at::outer(a[row], b[row]));
  return sums;
}

TEST(Grouped, ProductsAreThoseOfEachRow) {
  at::manual_seed(3);
  for (const Case& c : rounding_cases()) {
    const at::Tensor rows = random({kRows, kIn}).to(c.dtype);
    const at::Tensor weights = random({num_experts(), kOut, kIn}).to(c.dtype);
    const at::Tensor expected = product_row_by_row(rows.to(at::kDouble), weights.to(at::kDouble));
    expect_close(grouped_product(rows, weights, kBounds, c.path), expected, c.tolerance, name(c));
    const at::Tensor turned = weights.transpose(1, 2).contiguous().transpose(1, 2);
    expect_close(grouped_product(rows, turned, kBounds, c.path), expected, c.tolerance, name(c));
    if (c.dtype == at::kDouble) continue;  // ATen has no such form
    expect_close(aten_grouped_product(rows, weights, ends()), expected, c.tolerance,
                 "ATen " + name(c));
    expect_close(aten_grouped_product(rows, turned, ends()), expected, c.tolerance,
                 "ATen " + name(c));
  }
}

TEST(Grouped, OuterProductsAreAddedUpInTheTypeOfTheSums) {
  at::manual_seed(4);
  for (const Case& c : rounding_cases()) {
    const at::Tensor a = random({kRows, kOut}).to(c.dtype);
    const at::Tensor b = random({kRows, kIn}).to(c.dtype);
    const at::Tensor before = random({num_experts(), kOut, kIn});
    const at::Tensor expected = before + outer_row_by_row(a.to(at::kDouble), b.to(at::kDouble));
    const at::Tensor sums = before.to(accumulate_type(a), false, true);
    add_grouped_outer(a, b, kBounds, sums, c.path);
    expect_close(sums, expected, c.tolerance, name(c));
    if (c.dtype == at::kDouble) continue;
    expect_close(before + aten_grouped_outer(a, b, ends()), expected, c.tolerance,
                 "ATen " + name(c));
  }
}

TEST(Grouped, NoRowsGiveNoRows) {
  const at::Tensor none = at::empty({0, kIn});
  const std::vector<std::int64_t> bounds(kBounds.size(), 0);
  const at::Tensor weights = at::ones({num_experts(), kOut, kIn});
  EXPECT_EQ(grouped_product(none, weights, bounds, Path::fast).sizes(), at::IntArrayRef({0, kOut}));
  const at::Tensor sums = at::ones({num_experts(), kOut, kIn});
  add_grouped_outer(at::empty({0, kOut}), none, bounds, sums, Path::fast);
  EXPECT_TRUE(sums.equal(at::ones_like(sums)));
}

}  // namespace
}  // namespace trireme::ops::testing
