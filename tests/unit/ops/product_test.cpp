#include "ops/product.hpp"

#include "unit/ops/support.hpp"

namespace trireme::ops::testing {
namespace {

/// The four product functions, in the form of this machine and widened to fp32.
struct Products {
  const char* name;
  at::Tensor (*product)(const at::Tensor&, const at::Tensor&);
  void (*put)(const at::Tensor&, const at::Tensor&, at::Tensor);
  void (*add)(const at::Tensor&, const at::Tensor&, at::Tensor);
  at::Tensor (*outer)(const at::Tensor&, const at::Tensor&);
};

constexpr Products kProducts[] = {
    {"this machine's", product, put_product, add_product, outer_product},
    {"widened", widened::product, widened::put_product, widened::add_product,
     widened::outer_product}};

struct TypeBound {
  at::ScalarType type;
  double tolerance;  // the bounds of support.hpp; fp16 keeps 11 bits
};

constexpr TypeBound kTypes[] = {{at::kFloat, 4e-6}, {at::kHalf, 8e-4}, {at::kBFloat16, 6e-3}};

constexpr std::int64_t kRows = 1100;  // three blocks; the last one is not full
constexpr std::int64_t kIn = 40;
constexpr std::int64_t kOut = 24;

at::Tensor exact(const at::Tensor& x) {
  return x.to(at::kDouble);
}

TEST(Product, IsThatOfFp64UpToRounding) {
  at::manual_seed(4);
  for (const Products& of : kProducts) {
    for (const auto& [type, tolerance] : kTypes) {
      const std::string what = std::string(of.name) + ' ' + at::toString(type);
      // These rows have a stride.
      const at::Tensor a = random({kRows, kIn + 8}).to(type).narrow(1, 4, kIn);
      const at::Tensor weight = random({kOut, kIn}).to(type);
      const at::Tensor expected = exact(a).mm(exact(weight).t());
      const at::Tensor product = of.product(a, weight.t());
      EXPECT_EQ(product.scalar_type(), type);
      expect_close(product, expected, tolerance, what);
      expect_close(of.product(a.unflatten(0, {2, -1}), weight.t().contiguous()),
                   expected.unflatten(0, {2, -1}), tolerance, what + ", three dimensions");

      const at::Tensor out = at::full({kRows, kOut}, 7, type);
      of.put(a, weight.t(), out);
      expect_close(out, expected, tolerance, what + ", put");
      const at::Tensor before = random({kRows, kOut + 1}).to(type);
      const at::Tensor sum = before.clone().narrow(1, 1, kOut);
      of.add(a, weight.t(), sum);
      expect_close(sum, exact(before).narrow(1, 1, kOut) + expected, tolerance, what + ", added");
    }
  }
}

TEST(Product, WithTransposedRowsIsTheSumOverAllBlocks) {
  at::manual_seed(5);
  for (const Products& of : kProducts) {
    for (const auto& [type, tolerance] : kTypes) {
      const at::Tensor a = random({kRows, kOut}).to(type);
      const at::Tensor b = random({kRows, kIn + 8}).to(type).narrow(1, 4, kIn);
      expect_close(of.outer(a, b), exact(a).t().mm(exact(b)), tolerance,
                   std::string(of.name) + ' ' + at::toString(type));
    }
  }
}

TEST(Product, WithoutRowsIsEmptyOrZero) {
  for (const Products& of : kProducts) {
    const at::Tensor none = at::empty({0, kIn}, at::kBFloat16);
    EXPECT_EQ(of.product(none, at::ones({kIn, kOut}, at::kBFloat16)).sizes(),
              at::IntArrayRef({0, kOut}));
    const at::Tensor outer = of.outer(none, at::empty({0, kOut}, at::kBFloat16));
    EXPECT_TRUE(outer.eq(0).all().item<bool>());
    EXPECT_EQ(outer.sizes(), at::IntArrayRef({kIn, kOut}));
  }
}

TEST(Product, WithFullWidthIsNeverWidened) {
  EXPECT_FALSE(widens_products(at::ones({1, 1}, at::kFloat)));
  EXPECT_FALSE(widens_products(at::ones({1, 1}, at::kDouble)));
}

TEST(Product, WidenedGradientsOfWeightsAreNotRounded) {
  const at::Tensor a = at::ones({2, 1}, at::kBFloat16);
  const at::Tensor b = at::tensor({1.0, 1.0 / 512}).to(at::kBFloat16).unsqueeze(1);
  EXPECT_EQ(widened::outer_product(a, b).item<float>(), 1 + 1.0F / 512);  // bf16 has 8 bits
}

}  // namespace
}  // namespace trireme::ops::testing
