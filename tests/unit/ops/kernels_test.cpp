#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "core/dtype.hpp"
#include "core/philox.hpp"
#include "unit/ops/kernel_tables.hpp"

namespace trireme::ops::kernels {
namespace {

TEST_P(EveryTable, NormsRows) {
  constexpr std::int64_t kRows = 3;
  for (const std::int64_t width : {1, 15, 16, 64, 77}) {
    const auto x = random_floats(static_cast<std::size_t>(kRows * width), 1);
    const auto weight = random_floats(static_cast<std::size_t>(width), 2);
    Floats y(x.size());
    Floats rstd(kRows);
    RmsForward call{};
    call.element = Element::f32;
    call.x = x.data();
    call.weight = weight.data();
    call.y = y.data();
    call.rstd = rstd.data();
    call.rows = kRows;
    call.width = width;
    call.eps = 1e-6F;

    GetParam()->rms_forward(call);

    for (std::size_t i = 0; i < x.size(); ++i) {
      const auto row = i / static_cast<std::size_t>(width);
      double squares = 0;
      for (std::size_t j = 0; j < static_cast<std::size_t>(width); ++j) {
        squares += std::pow(x[row * static_cast<std::size_t>(width) + j], 2);
      }
      const double scale = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-6);
      const double expected = x[i] * scale * weight[i % static_cast<std::size_t>(width)];
      EXPECT_NEAR(y[i], expected, 1e-6 * (1 + std::abs(expected))) << "width " << width;
    }
  }
}

/// Every table, including the generic one, which a small machine may have to use.
TEST_P(EveryTable, MultipliesRowsOfBothTypes) {
  constexpr std::int64_t kIn = 70;
  constexpr std::int64_t kStride = 96;
  constexpr std::int64_t kOut = 9;
  const auto w = random_floats(kOut * kIn, 8);
  Halves w_halves(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) w_halves[i] = to_bf16_bits(w[i]);
  for (const std::int64_t rows : {1, 2, 3, 8}) {
    for (const Element element : {Element::f32, Element::bf16}) {
      auto x = random_floats(static_cast<std::size_t>(rows * kIn), 9);
      if (element == Element::bf16) {  // products with such weights take rounded inputs
        for (float& number : x) number = from_bf16_bits(to_bf16_bits(number));
      }
      Floats laid(static_cast<std::size_t>(rows * kStride), NAN);
      GetParam()->spread_rows(
          {Element::f32, element, x.data(), kIn, laid.data(), kStride, rows, kIn});
      Floats y(static_cast<std::size_t>(rows * kOut), NAN);
      const void* weights =
          element == Element::f32 ? static_cast<const void*>(w.data()) : w_halves.data();
      GetParam()->linear_rows({element, Element::f32, laid.data(), kStride, weights, kIn, y.data(),
                               kOut, rows, kIn, 0, kOut});
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t o = 0; o < kOut; ++o) {
          double expected = 0;
          for (std::int64_t k = 0; k < kIn; ++k) {
            const auto at = static_cast<std::size_t>(o * kIn + k);
            const double weight = element == Element::f32 ? w[at] : from_bf16_bits(w_halves[at]);
            expected += weight * x[static_cast<std::size_t>(r * kIn + k)];
          }
          EXPECT_NEAR(y[static_cast<std::size_t>(r * kOut + o)], expected, 2e-5) << rows << " rows";
        }
      }
    }
  }
}

TEST_P(EveryTable, MultipliesRowsByInt8) {
  constexpr std::int64_t kIn = 70;
  constexpr std::int64_t kStride = 96;
  constexpr std::int64_t kOut = 9;
  std::vector<std::int8_t> w(kOut * kIn);
  std::mt19937 generator(13);
  for (auto& value : w) value = static_cast<std::int8_t>(static_cast<int>(generator() % 255) - 127);
  const auto scales = random_floats(kOut, 14);
  for (const std::int64_t rows : {1, 2, 3, 8}) {
    auto x = random_floats(static_cast<std::size_t>(rows * kStride), 9);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = i % kStride < kIn ? x[i] : 0;
    Floats y(static_cast<std::size_t>(rows * kOut), NAN);
    Floats scratch(4 * kStride, NAN);
    LinearRows call{Element::f32, Element::f32, x.data(), kStride, w.data(), kIn,
                    y.data(),     kOut,         rows,     kIn,     0,        kOut};
    call.scales = scales.data();
    call.scratch = scratch.data();

    GetParam()->int8_linear_rows(call);

    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t o = 0; o < kOut; ++o) {
        double expected = 0;
        for (std::int64_t k = 0; k < kIn; ++k)
          expected += double{x[static_cast<std::size_t>(r * kStride + k)]} *
                      w[static_cast<std::size_t>(o * kIn + k)];
        expected *= scales[static_cast<std::size_t>(o)];
        EXPECT_NEAR(y[static_cast<std::size_t>(r * kOut + o)], expected, 2e-3) << rows << " rows";
      }
    }
  }
}

TEST_P(EveryTable, AttendsToBlocks) {
  constexpr std::int64_t kWidth = 16;
  constexpr std::int64_t kTokens = 20;  // stored in blocks 1 and 0
  const std::vector<std::int32_t> blocks{1, 0};
  const auto k = random_floats(kTokens * kWidth, 10);
  const auto v = random_floats(kTokens * kWidth, 11);
  const auto q = random_floats(2 * kWidth, 12);  // two heads of the last token
  const KeyInterval seen{3, kTokens};
  Floats keys(2 * 16 * kWidth, NAN);
  Floats values(keys.size(), NAN);
  PagedStore store{};
  store.k = k.data();
  store.v = v.data();
  store.k_row_stride = store.v_row_stride = store.width = kWidth;
  store.keys = keys.data();
  store.values = values.data();
  store.blocks = blocks.data();
  store.last_row = kTokens;
  store.kv_heads = 1;
  store.num_blocks = 2;
  GetParam()->paged_store(store);
  Floats out(2 * kWidth);
  Floats scratch(2 * (2 * kWidth + 16));
  PagedAttention call{};
  call.q = q.data();
  call.q_head_stride = kWidth;
  call.keys = keys.data();
  call.values = values.data();
  call.out = out.data();
  call.blocks = blocks.data();
  call.scratch = scratch.data();
  call.seen = &seen;
  call.last_row = 1;
  call.num_blocks = 2;
  call.group = 2;
  call.width = kWidth;
  call.scale = 0.5F;

  GetParam()->paged_attention(call);

  for (std::size_t head = 0; head < 2; ++head) {
    std::vector<double> weights(kTokens);
    double total = 0;
    for (std::size_t t = 3; t < kTokens; ++t) {
      double score = 0;
      for (std::size_t d = 0; d < kWidth; ++d)
        score += static_cast<double>(q[head * kWidth + d]) * k[t * kWidth + d];
      weights[t] = std::exp(score * 0.5);
      total += weights[t];
    }
    for (std::size_t d = 0; d < kWidth; ++d) {
      double expected = 0;
      for (std::size_t t = 0; t < kTokens; ++t) expected += weights[t] / total * v[t * kWidth + d];
      EXPECT_NEAR(out[head * kWidth + d], expected, 4e-6);
    }
  }
}

TEST_P(EveryTable, RoundsToNearestEven) {
  // 1 + 2^-8 lies between two bf16 numbers and rounds down to even, 1 + 3 * 2^-8 rounds up to even.
  const Floats in{1.0F, 1.00390625F, 1.01171875F, -1.00390625F, 3.3e38F,
                  0.0F, -0.0F,       INFINITY,    NAN};
  Halves out(in.size());

  GetParam()->round_rows(in.data(), 9, nullptr, out.data(), 9, 1, 9);

  for (std::size_t i = 0; i + 1 < in.size(); ++i) EXPECT_EQ(out[i], to_bf16_bits(in[i])) << in[i];
  EXPECT_TRUE(std::isnan(from_bf16_bits(out.back())));
}

TEST_P(EveryTable, GatedSiluFollowsTheFormula) {
  Floats gate_up;
  for (float g = -100; g <= 100; g += 0.37F) gate_up.push_back(g);
  const std::size_t width = gate_up.size();
  gate_up.insert(gate_up.end(), width, 2.0F);
  Floats y(width);
  Gated call{};
  call.element = Element::f32;
  call.activation = 0;
  call.gate_up = gate_up.data();
  call.y = y.data();
  call.rows = 1;
  call.width = static_cast<std::int64_t>(width);

  GetParam()->gated_forward(call);

  for (std::size_t i = 0; i < width; ++i) {
    const double g = gate_up[i];
    const double expected = 2.0 * g / (1 + std::exp(-g));
    // The exponent is rounded before 2^x: its error of 2^-24 |g| is relative in the result.
    const double bound = 0x1p-22 * (1 + std::abs(g));
    EXPECT_NEAR(y[i], expected, bound * std::abs(expected) + 1e-36) << g;
  }
}

TEST_P(EveryTable, CrossEntropyGivesLossAndGradient) {
  constexpr std::int64_t kWidth = 37;
  const auto logits = random_floats(2 * kWidth, 3);
  auto grads = logits;
  const std::vector<std::int64_t> targets{36, -100};
  std::vector<double> losses(2, -1);
  Floats scratch(kWidth);

  GetParam()->cross_entropy({Element::f32, grads.data(), targets.data(), nullptr, losses.data(),
                             scratch.data(), 2, kWidth, 0.5F, true});

  double total = 0;
  for (std::size_t i = 0; i < kWidth; ++i) total += std::exp(static_cast<double>(logits[i]));
  EXPECT_NEAR(losses[0], std::log(total) - logits[36], 1e-6);
  EXPECT_EQ(losses[1], 0.0);
  for (std::size_t i = 0; i < kWidth; ++i) {
    EXPECT_NEAR(grads[i], 0.5 * (std::exp(logits[i]) / total - (i == 36 ? 1 : 0)), 1e-7);
    EXPECT_EQ(grads[kWidth + i], 0.0F);
  }
}

TEST_P(EveryTable, TurnsHeadsAndBack) {
  constexpr std::int64_t kWidth = 6;
  const auto x = random_floats(2 * kWidth, 4);  // two heads of one token
  const Floats cos{0.5F, -1.0F, 0.8F};
  const Floats sin{std::sqrt(0.75F), 0.0F, 0.6F};
  const std::int64_t position = 0;
  Floats turned(x.size());
  Floats back(x.size());
  Heads call{};
  call.element = Element::f32;
  call.x = x.data();
  call.out = turned.data();
  call.x_strides = call.out_strides = call.grad_strides = {2 * kWidth, 2 * kWidth, kWidth};
  call.cos = cos.data();
  call.sin = sin.data();
  call.positions = &position;
  call.last_token = call.length = 1;
  call.num_heads = 2;
  call.width = kWidth;

  GetParam()->heads_forward(call);
  call.grad = turned.data();
  call.out = back.data();
  GetParam()->heads_backward(call);

  EXPECT_NEAR(turned[0], x[0] * cos[0] - x[3] * sin[0], 1e-6);
  EXPECT_NEAR(turned[kWidth + 5], x[kWidth + 5] * cos[2] + x[kWidth + 2] * sin[2], 1e-6);
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(back[i], x[i], 1e-6);
}

TEST_P(EveryTable, AdamWFollowsTheFormula) {
  constexpr std::size_t kCount = 37;
  constexpr std::size_t kFirst = 2;
  const Floats start = random_floats(kCount, 21);
  const Floats grads = random_floats(kCount, 22);
  Floats weights = start;
  Floats first(kCount, 0.5F);
  Floats second(kCount, 0.25F);
  Halves copy(kCount, 0);
  GetParam()->adamw({.copy_element = Element::bf16,
                     .copy = copy.data(),
                     .weights = weights.data(),
                     .grads = grads.data(),
                     .exp_avg = first.data(),
                     .exp_avg_sq = second.data(),
                     .first = kFirst,
                     .last = kCount,
                     .factor = 0.5F,
                     .keep = 0.99F,
                     .rate1 = 0.1F,
                     .rate2 = 0.05F,
                     .step_size = 0.01F,
                     .inverse_root = 1.5F,
                     .eps = 1e-3F});
  for (std::size_t i = 0; i < kCount; ++i) {
    if (i < kFirst) {
      EXPECT_EQ(weights[i], start[i]);
      EXPECT_EQ(copy[i], 0);
      continue;
    }
    const double grad = 0.5 * grads[i];
    const double average = 0.9 * 0.5 + 0.1 * grad;
    const double square = 0.95 * 0.25 + 0.05 * grad * grad;
    EXPECT_NEAR(first[i], average, 1e-6);
    EXPECT_NEAR(second[i], square, 1e-6);
    EXPECT_NEAR(weights[i], 0.99 * start[i] - 0.01 * average / (std::sqrt(square) * 1.5 + 1e-3),
                1e-6);
    EXPECT_EQ(copy[i], to_bf16_bits(weights[i]));
  }
}

TEST_P(EveryTable, DropoutUsesPhiloxWords) {
  constexpr std::int64_t kWidth = 100;
  const Floats x(kWidth, 1.0F);
  Floats y(kWidth);
  const std::int64_t sample = (std::int64_t{7} << 33) + 1;
  const std::int64_t position = 21;

  GetParam()->dropout(
      {Element::f32, x.data(), y.data(), &sample, &position, 99, 10, 1, kWidth, 1U << 31, 2.0F});

  for (std::uint64_t i = 0; i < kWidth; ++i) {
    const auto words = philox4x32(99, (std::uint64_t{21} << 32) | ((10 + i) / 4),
                                  static_cast<std::uint64_t>(sample));
    EXPECT_EQ(y[i], words[(10 + i) % 4] >= (1U << 31) ? 2.0F : 0.0F) << i;
  }
}

}  // namespace
}  // namespace trireme::ops::kernels
