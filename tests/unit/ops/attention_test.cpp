#include "ops/attention.hpp"

#include <cmath>

#include "core/error.hpp"
#include "unit/ops/attention_reference.hpp"

namespace trireme::ops::testing {
namespace {

struct AttentionShape {
  std::int64_t B, H, Hk, T, D;
  bool causal;
  RowBounds bounds;
  std::int64_t window = 0;
  double softcap = 0;

  [[nodiscard]] AttentionSetup setup() const {
    AttentionSetup all{1.0 / std::sqrt(static_cast<double>(D)), {.causal = causal}, bounds};
    all.mask.window = window;
    all.softcap = softcap;
    return all;
  }
};

const std::vector<AttentionShape> kAttentionShapes{
    {1, 1, 1, 1, 8, true, {}},
    {2, 4, 2, 33, 64, true, {}},
    {1, 8, 2, 70, 32, true, {}},
    {2, 2, 2, 40, 64, false, {}},
    {2, 4, 2, 150, 64, true, {{0, 150}, {0, 1, 30, 149, 150}}},
    {1, 2, 1, 130, 128, false, {{0, 65, 130}}},
    {1, 4, 1, 257, 64, true, {{0, 64, 257}}},
    {1, 2, 1, 40, 32, true, {}, 2},
    {1, 4, 2, 100, 64, true, {}, 20},   // smaller than a tile
    {1, 2, 2, 200, 32, true, {}, 100},  // larger than a tile
    {1, 2, 1, 40, 64, true, {}, 1000},  // larger than the row
    {1, 2, 1, 150, 64, true, {{0, 1, 30, 149, 150}}, 40},
    {1, 2, 1, 66, 32, false, {{0, 33, 66}}, 7},
    {1, 4, 2, 70, 48, true, {{0, 5, 70}}},
    {2, 2, 1, 90, 32, true, {{0, 1, 2, 3, 4, 20, 21, 70, 71, 90}, {0, 60, 65, 66, 90}}},
};

const std::vector<AttentionShape> kCappedShapes{
    {2, 4, 2, 33, 64, true, {}, 0, 0.7},
    {2, 4, 2, 150, 64, true, {{0, 150}, {0, 1, 30, 149, 150}}, 0, 2},
    {1, 2, 1, 66, 32, true, {{0, 33, 66}}, 7, 0.3},
};

TEST(Attention, EqualsOneQueryAtATimeAndItsAutograd) {
  at::manual_seed(1);
  std::vector<AttentionShape> shapes = kAttentionShapes;
  shapes.insert(shapes.end(), kCappedShapes.begin(), kCappedShapes.end());
  for (const auto& s : shapes) {
    const AttentionSetup setup = s.setup();
    for (const auto& c : kAttentionCases) {
      expect_same_as_reference(
          c,
          {random({s.B, s.H, s.T, s.D}), random({s.B, s.Hk, s.T, s.D}),
           random({s.B, s.Hk, s.T, s.D})},
          [&](const Tensors& in) { return Tensors{attention(in[0], in[1], in[2], setup, c.path)}; },
          [&](const Tensors& in) {
            return Tensors{reference_attention(in[0], in[1], in[2], setup).out};
          },
          "T " + std::to_string(s.T) + " window " + std::to_string(s.window));
    }
  }
}

TEST(Attention, TheLibraryPathOfGpusIsTheSameFunction) {
  at::manual_seed(2);
  for (const auto& s : kAttentionShapes) {
    const AttentionSetup setup = s.setup();
    for (const Case& c :
         {Case{Path::fast, at::kDouble, 1e-11}, Case{Path::fast, at::kFloat, 1e-5}}) {
      expect_same_as_reference(
          c,
          {random({s.B, s.H, s.T, s.D}), random({s.B, s.Hk, s.T, s.D}),
           random({s.B, s.Hk, s.T, s.D})},
          [&](const Tensors& in) { return Tensors{library_attention(in[0], in[1], in[2], setup)}; },
          [&](const Tensors& in) {
            return Tensors{reference_attention(in[0], in[1], in[2], setup).out};
          },
          "T " + std::to_string(s.T) + " window " + std::to_string(s.window));
    }
  }
}

TEST(Attention, TakesStridedInputAndGivesTokensFirst) {
  at::manual_seed(2);
  const AttentionSetup setup{0.125, {}, {}};
  for (const auto& c : kAttentionCases) {
    expect_same_as_reference(
        c, {random({2, 50, 4, 64}), random({2, 50, 2, 64}), random({2, 50, 2, 64})},
        [&](const Tensors& in) {
          const auto out = attention(in[0].transpose(1, 2), in[1].transpose(1, 2),
                                     in[2].transpose(1, 2), setup, c.path);
          EXPECT_TRUE(out.transpose(1, 2).is_contiguous());
          return Tensors{out};
        },
        [&](const Tensors& in) {
          return Tensors{reference_attention(in[0].transpose(1, 2), in[1].transpose(1, 2),
                                             in[2].transpose(1, 2), setup)
                             .out};
        },
        "strided");
  }
}

TEST(Attention, NothingCrossesADocumentBoundary) {
  at::manual_seed(3);
  const AttentionSetup setup{0.125, {}, {{0, 40, 100}}};
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    auto q = random({1, 2, 100, 64}).to(dtype);
    auto k = random({1, 1, 100, 64}).to(dtype);
    auto v = random({1, 1, 100, 64}).to(dtype);
    const auto before = attention_forward(q, k, v, setup).out.narrow(2, 40, 60).clone();

    k.narrow(2, 0, 40).mul_(-3);
    v.narrow(2, 0, 40).add_(7);
    const auto after = attention_forward(q, k, v, setup).out.narrow(2, 40, 60);

    EXPECT_TRUE(before.equal(after));
  }
}

TEST(Attention, AWindowAsLongAsTheRowIsNoWindowBitForBit) {
  at::manual_seed(5);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const auto q = random({2, 4, 150, 64}).to(dtype);
    const auto k = random({2, 2, 150, 64}).to(dtype);
    AttentionSetup setup{0.125, {}, {{0, 70, 150}, {0, 150}}};
    const auto whole = attention_forward(q, k, k, setup);
    const auto whole_grads = attention_backward(q, q, k, k, whole, setup);

    setup.mask.window = 150;
    const auto windowed = attention_forward(q, k, k, setup);
    const auto grads = attention_backward(q, q, k, k, windowed, setup);

    EXPECT_TRUE(windowed.out.equal(whole.out) && windowed.lse.equal(whole.lse)) << dtype;
    EXPECT_TRUE(grads.q.equal(whole_grads.q) && grads.k.equal(whole_grads.k)) << dtype;
  }
}

TEST(Attention, AWindowOfOneKeyGivesItsValue) {
  at::manual_seed(7);
  AttentionSetup setup{0.125, {}, {}};
  setup.mask.window = 1;
  for (const Case& c : kAttentionCases) {
    const auto q = random({1, 2, 100, 32}).to(c.dtype);
    const auto v = random({1, 2, 100, 32}).to(c.dtype);
    const auto forward = attention_forward(q, q, v, setup, c.path);
    const auto grads = attention_backward(q, q, q, v, forward, setup, c.path);

    expect_close(forward.out, v.to(at::kDouble), c.tolerance, "out " + name(c));
    expect_close(grads.v, q.to(at::kDouble), c.tolerance, "gradient " + name(c));
  }
}

TEST(Attention, NothingOutsideAWindowIsRead) {
  at::manual_seed(6);
  AttentionSetup setup{0.125, {}, {}};
  setup.mask.window = 30;
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto q = random({1, 2, 300, 64}).to(dtype);
    const auto k = random({1, 1, 300, 64}).to(dtype);
    const auto before = attention_forward(q, k, k, setup).out.narrow(2, 229, 71).clone();

    k.narrow(2, 0, 200).mul_(-3);
    const auto after = attention_forward(q, k, k, setup).out.narrow(2, 229, 71);

    EXPECT_TRUE(before.equal(after)) << dtype;
  }
}

TEST(Attention, IsTheSameFunctionTwice) {
  at::manual_seed(4);
  const AttentionSetup setup{0.125, {}, {}};
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto q = random({2, 4, 200, 64}).to(dtype);
    const auto k = random({2, 2, 200, 64}).to(dtype);
    const auto v = random({2, 2, 200, 64}).to(dtype);
    const auto out = attention_forward(q, k, v, setup);
    const auto first = attention_backward(q, q, k, v, out, setup);
    const auto second = attention_backward(q, q, k, v, attention_forward(q, k, v, setup), setup);

    EXPECT_TRUE(first.q.equal(second.q));
    EXPECT_TRUE(first.k.equal(second.k));
    EXPECT_TRUE(first.v.equal(second.v));
  }
}

TEST(Attention, SurvivesLargeScores) {
  const AttentionSetup setup{1.0, {}, {}};
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    const auto q = (random({1, 1, 64, 64}) * 30).to(dtype);
    const auto out = attention_forward(q, q, q, setup);
    const auto grads = attention_backward(q, q, q, q, out, setup);

    EXPECT_TRUE(out.out.isfinite().all().item<bool>());
    EXPECT_TRUE(grads.q.isfinite().all().item<bool>());
  }
}

TEST(Attention, RefusesBoundsThatDoNotCoverTheRow) {
  const auto x = at::ones({1, 1, 4, 8});
  for (const RowBounds& bounds :
       {RowBounds{{0, 3}}, RowBounds{{1, 4}}, RowBounds{{0, 2, 2, 4}}, RowBounds{{0, 4}, {0, 4}}}) {
    EXPECT_THROW(attention(x, x, x, {1.0, {}, bounds}), Error);
  }
}

}  // namespace
}  // namespace trireme::ops::testing
