#include "ops/rope.hpp"

#include <cmath>

#include "core/error.hpp"
#include "support/ops_autograd.hpp"
#include "unit/ops/support.hpp"

namespace trireme::ops::testing {
namespace {

constexpr double kTheta = 1e4;

/// Rotates elements i and i + D/2 as a complex number by position * theta^(-2i/D).
at::Tensor reference_rope(const at::Tensor& x, const at::Tensor& positions) {
  const auto half = x.size(-1) / 2;
  const auto frequencies =
      at::exp(at::arange(half, at::kDouble) * (-std::log(kTheta) / static_cast<double>(half)));
  const auto angles =
      (positions.to(at::kDouble).unsqueeze(-1) * frequencies).unsqueeze(2);  // [B, T, 1, D/2]
  const auto numbers = at::complex(x.narrow(-1, 0, half), x.narrow(-1, half, half));
  const auto turned = numbers * at::polar(at::ones_like(angles), angles);
  return at::cat({at::real(turned), at::imag(turned)}, -1).transpose(1, 2);
}

struct RopeShape {
  std::int64_t B, T, H, Hk, D;
};

const std::vector<RopeShape> kRopeShapes{
    {1, 1, 1, 1, 2}, {2, 5, 4, 2, 64}, {1, 7, 8, 2, 128}, {3, 3, 3, 3, 6}};

QkNormRope make_setup(const RopeShape& s, at::ScalarType dtype) {
  QkNormRope setup;
  setup.eps = kEps;
  setup.tables = rope_tables(64, s.D, kTheta, dtype == at::kDouble ? at::kDouble : at::kFloat);
  setup.positions = at::randint(0, 64, {s.B, s.T}, at::kLong);
  return setup;
}

TEST(QkNormRope, EqualsComplexRotationAndItsAutograd) {
  at::manual_seed(1);
  for (const auto& c : rounding_cases()) {
    for (const auto& s : kRopeShapes) {
      auto setup = make_setup(s, c.dtype);
      expect_same_as_reference(
          c,
          {random({s.B, s.T, s.H, s.D}), random({s.B, s.T, s.Hk, s.D}), random({s.D}),
           random({s.D})},
          [&](const Tensors& in) {
            setup.q_weight = in[2];
            setup.k_weight = in[3];
            const auto [q, k] = qk_norm_rope(in[0], in[1], setup, c.path);
            return Tensors{q, k};
          },
          [&](const Tensors& in) {
            return Tensors{reference_rope(reference_norm(in[0], in[2]), setup.positions),
                           reference_rope(reference_norm(in[1], in[3]), setup.positions)};
          },
          "qk_norm_rope");
    }
  }
}

TEST(QkNormRope, WorksWithoutNorm) {
  at::manual_seed(2);
  for (const auto& c : rounding_cases()) {
    for (const auto& s : kRopeShapes) {
      const auto setup = make_setup(s, c.dtype);
      expect_same_as_reference(
          c, {random({s.B, s.T, s.H, s.D}), random({s.B, s.T, s.Hk, s.D})},
          [&](const Tensors& in) {
            const auto [q, k] = qk_norm_rope(in[0], in[1], setup, c.path);
            return Tensors{q, k};
          },
          [&](const Tensors& in) {
            return Tensors{reference_rope(in[0], setup.positions),
                           reference_rope(in[1], setup.positions)};
          },
          "rope");
    }
  }
}

TEST(QkNormRope, GivesOneGradientForAFusedProjection) {
  at::manual_seed(3);
  for (const auto& c : rounding_cases()) {
    for (const auto& s : kRopeShapes) {
      auto setup = make_setup(s, c.dtype);
      expect_same_as_reference(
          c, {random({s.B, s.T, (s.H + 2 * s.Hk) * s.D}), random({s.D}), random({s.D})},
          [&](const Tensors& in) {
            setup.q_weight = in[1];
            setup.k_weight = in[2];
            const auto [q, k, v] = qkv_norm_rope(in[0], s.H, s.Hk, setup, c.path);
            return Tensors{q, k, v};
          },
          [&](const Tensors& in) {
            const auto slots = in[0].view({s.B, s.T, s.H + 2 * s.Hk, s.D});
            return Tensors{
                reference_rope(reference_norm(slots.narrow(2, 0, s.H), in[1]), setup.positions),
                reference_rope(reference_norm(slots.narrow(2, s.H, s.Hk), in[2]), setup.positions),
                slots.narrow(2, s.H + s.Hk, s.Hk).transpose(1, 2)};
          },
          "qkv_norm_rope");
    }
  }
}

TEST(QkNormRope, IsAFunctionOfPositionNotOfPlace) {
  at::manual_seed(4);
  const RopeShape s{1, 8, 2, 1, 16};
  auto setup = make_setup(s, at::kFloat);
  const auto q = random({1, 8, 2, 16}).to(at::kFloat);
  const auto k = random({1, 8, 1, 16}).to(at::kFloat);

  const auto whole = qk_norm_rope(q, k, setup);
  setup.positions = setup.positions.narrow(1, 3, 4);
  const auto part = qk_norm_rope(q.narrow(1, 3, 4), k.narrow(1, 3, 4), setup);

  EXPECT_TRUE(part.first.equal(whole.first.narrow(2, 3, 4)));
  EXPECT_TRUE(part.second.equal(whole.second.narrow(2, 3, 4)));
}

TEST(QkNormRope, NamesAPositionOutsideTheTables) {
  const RopeShape s{1, 1, 1, 1, 4};
  auto setup = make_setup(s, at::kFloat);
  setup.positions.fill_(64);
  const auto x = at::ones({1, 1, 1, 4});

  try {
    qk_norm_rope(x, x, setup);
    FAIL() << "accepted position 64 of 64";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find("64"), std::string::npos);
  }
}

TEST(RopeTables, MultiplyGivenFrequenciesByTheScale) {
  const std::vector<double> frequencies{1.0, 0.25};
  const auto tables = rope_tables(9, frequencies, 1.5, at::kDouble);

  EXPECT_EQ(tables.cos.sizes(), (std::vector<std::int64_t>{9, 2}));
  EXPECT_EQ(tables.cos[8][1].item<double>(), 1.5 * std::cos(2.0));
  EXPECT_EQ(tables.sin[8][0].item<double>(), 1.5 * std::sin(8.0));
}

TEST(RopeTables, AreExactAtLargePositions) {
  const auto tables = rope_tables(32768, 64, 1e6, at::kFloat);

  EXPECT_EQ(tables.cos[32767][0].item<float>(), static_cast<float>(std::cos(32767.0)));
  EXPECT_EQ(tables.sin[32767][0].item<float>(), static_cast<float>(std::sin(32767.0)));
}

}  // namespace
}  // namespace trireme::ops::testing
