#include "ops/dropout.hpp"

#include <cmath>

#include "core/error.hpp"
#include "core/philox.hpp"
#include "unit/ops/support.hpp"

namespace trireme::ops::testing {
namespace {

DropoutMask make_mask(std::int64_t batch, std::int64_t length) {
  DropoutMask mask;
  mask.p = 0.25;
  mask.key = philox_key(7, "dropout.test");
  mask.step = 11;
  mask.layer = 3;
  mask.op = 1;
  mask.samples = at::arange(batch, at::kLong) * 12345678901 + 5;
  mask.positions = at::arange(length, at::kLong).expand({batch, length}).clone();
  return mask;
}

/// Computes the mask element by element from the documented counter.
at::Tensor reference_mask(const DropoutMask& mask, std::int64_t features) {
  auto kept = at::zeros({mask.samples.size(0), mask.positions.size(1), features}, at::kDouble);
  auto view = kept.accessor<double, 3>();
  for (std::int64_t b = 0; b < kept.size(0); ++b) {
    for (std::int64_t t = 0; t < kept.size(1); ++t) {
      for (std::int64_t f = 0; f < features; ++f) {
        const auto feature = static_cast<std::uint64_t>(mask.first_feature + f);
        const auto position = static_cast<std::uint64_t>(mask.positions[b][t].item<std::int64_t>());
        const auto sample = static_cast<std::uint64_t>(mask.samples[b].item<std::int64_t>());
        const auto words = philox4x32(dropout_key(mask), position << 32 | feature / 4, sample);
        view[b][t][f] = words[feature % 4] >= mask.p * 4294967296.0 ? 1.0 / (1.0 - mask.p) : 0.0;
      }
    }
  }
  return kept;
}

TEST(DropoutPhilox, FollowsTheDocumentedCounter) {
  at::manual_seed(1);
  for (const auto& c : rounding_cases()) {
    for (const std::int64_t features : {1, 4, 7, 70, 129}) {
      for (const std::int64_t first_feature : {0, 6, 64}) {
        auto mask = make_mask(2, 3);
        mask.first_feature = first_feature;
        const auto kept = reference_mask(mask, features);
        expect_same_as_reference(
            c, {random({2, 3, features})},
            [&](const Tensors& in) { return Tensors{dropout_philox(in[0], mask, c.path)}; },
            [&](const Tensors& in) { return Tensors{in[0] * kept}; }, "dropout");
      }
    }
  }
}

TEST(DropoutPhilox, MaskIsTheSameForEverySplit) {
  const auto x = at::ones({4, 6, 40});
  const auto whole_mask = make_mask(4, 6);
  for (const auto path : {Path::plain, Path::fast}) {
    const auto whole = dropout_apply(x, whole_mask, path);
    auto part_mask = whole_mask;
    part_mask.samples = whole_mask.samples.narrow(0, 1, 2);
    part_mask.positions = whole_mask.positions.narrow(0, 1, 2).narrow(1, 2, 3);
    part_mask.first_feature = 10;

    const auto part = dropout_apply(at::ones({2, 3, 20}), part_mask, path);

    EXPECT_TRUE(part.equal(whole.narrow(0, 1, 2).narrow(1, 2, 3).narrow(2, 10, 20)));
  }
}

TEST(DropoutPhilox, DropsTheStatedShare) {
  const auto mask = make_mask(16, 64);
  const auto y = dropout_apply(at::ones({16, 64, 512}), mask);
  const auto share =
      1.0 - static_cast<double>(y.count_nonzero().item<std::int64_t>()) / (16 * 64 * 512);

  EXPECT_NEAR(share, 0.25, 5 * std::sqrt(0.25 * 0.75 / (16 * 64 * 512)));  // five sigma
}

TEST(DropoutPhilox, EveryFieldChangesTheMask) {
  const auto x = at::ones({1, 4, 64});
  const auto base = make_mask(1, 4);
  const auto first = dropout_apply(x, base);
  for (int field = 0; field < 5; ++field) {
    auto mask = base;
    if (field == 0) mask.key += 1;
    if (field == 1) mask.step += 1;
    if (field == 2) mask.layer += 1;
    if (field == 3) mask.op += 1;
    if (field == 4) mask.samples = base.samples + (std::int64_t{1} << 32);

    EXPECT_FALSE(dropout_apply(x, mask).equal(first)) << "field " << field;
  }
}

TEST(DropoutPhilox, WithProbabilityZeroIsTheInput) {
  const auto x = at::ones({1, 2, 3});
  auto mask = make_mask(1, 2);
  mask.p = 0.0;

  EXPECT_TRUE(dropout_philox(x, mask).is_same(x));
  EXPECT_TRUE(dropout_apply(x, mask).equal(x));
}

TEST(DropoutPhilox, RefusesAShareOfOne) {
  auto mask = make_mask(1, 2);
  mask.p = 1.0;
  EXPECT_THROW(dropout_philox(at::ones({1, 2, 3}), mask), Error);
}

}  // namespace
}  // namespace trireme::ops::testing
