#include <cmath>
#include <random>

#include "core/error.hpp"
#include "unit/ops/attention_reference.hpp"

/// Queries and keys of different length, at positions of a row with known documents.
namespace trireme::ops::testing {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct ShapeWithPositions {
  const char* name;
  std::int64_t B, H, Hk, D;
  AttentionSetup setup;

  [[nodiscard]] std::int64_t queries() const { return count(setup.query_positions); }

  [[nodiscard]] std::int64_t keys() const { return count(setup.key_positions); }

  static std::int64_t count(const RowPositions& places) {
    std::int64_t total = 0;
    for (const TokenRange& range : places.front()) total += range.length;
    return total;
  }
};

AttentionSetup windowed(std::int64_t window, RowPositions queries, RowPositions keys,
                        RowBounds bounds = {}) {
  AttentionSetup setup{0.2, {}, std::move(bounds), std::move(queries), std::move(keys)};
  setup.mask.window = window;
  return setup;
}

std::vector<ShapeWithPositions> shapes() {
  return {
      {"decode", 2, 4, 2, 64, {0.125, {}, {}, {{{40, 1}}, {{40, 1}}}, {{{0, 41}}, {{0, 41}}}}},
      {"chunk of a prompt", 1, 2, 1, 32, {0.2, {}, {}, {{{100, 70}}}, {{{0, 170}}}}},
      {"zigzag, own block",
       1,
       2,
       2,
       64,
       {0.125, {}, {{0, 30, 310, 400}}, {{{0, 100}, {300, 100}}}, {{{0, 100}, {300, 100}}}}},
      {"zigzag, another's block",
       1,
       4,
       2,
       64,
       {0.125, {}, {{0, 30, 310, 400}}, {{{0, 100}, {300, 100}}}, {{{100, 200}}}}},
      {"later keys, then earlier; no key for the first queries",
       2,
       2,
       1,
       32,
       {0.2, {}, {}, {{{0, 20}, {90, 21}}, {{50, 41}}}, {{{95, 40}, {10, 30}}, {{60, 70}}}}},
      {"no document in common", 1, 2, 1, 64, {0.125, {}, {{0, 20, 60}}, {{{20, 40}}}, {{{0, 20}}}}},
      {"neighbours cut in three",
       1,
       2,
       1,
       64,
       {0.125, {}, {}, {{{64, 80}}}, {{{0, 70}, {100, 100}, {70, 30}}}}},
      {"not causal",
       2,
       2,
       1,
       32,
       {0.2,
        {.causal = false},
        {{0, 50, 90}, {0, 90}},
        {{{10, 60}}, {{0, 60}}},
        {{{0, 30}}, {{60, 30}}}}},
      {"window, decode", 1, 4, 2, 64, windowed(9, {{{40, 1}}}, {{{0, 41}}})},
      {"window, chunk of a prompt", 1, 2, 1, 32, windowed(70, {{{100, 70}}}, {{{0, 170}}})},
      {"window, another's block: keys leave the window before the queries", 1, 2, 1, 64,
       windowed(90, {{{0, 100}, {300, 100}}}, {{{100, 200}}})},
      {"window over a gap and a document border", 1, 2, 1, 64,
       windowed(120, {{{64, 80}, {200, 90}}}, {{{150, 60}, {20, 70}}}, {{0, 30, 270, 300}})},
  };
}

Tensors inputs_of(const ShapeWithPositions& s) {
  return {random({s.B, s.H, s.queries(), s.D}), random({s.B, s.Hk, s.keys(), s.D}),
          random({s.B, s.Hk, s.keys(), s.D})};
}

TEST(AttentionPlaces, EqualOneQueryAtATimeAndItsAutograd) {
  at::manual_seed(1);
  for (const ShapeWithPositions& s : shapes()) {
    for (const Case& c : kAttentionCases) {
      expect_same_as_reference(
          c, inputs_of(s),
          [&](const Tensors& in) {
            return Tensors{attention(in[0], in[1], in[2], s.setup, c.path)};
          },
          [&](const Tensors& in) {
            // Adding 0 x gives a gradient even if no query sees a key.
            const auto out = reference_attention(in[0], in[1], in[2], s.setup).out;
            return Tensors{out + 0 * (in[0].sum() + in[1].sum() + in[2].sum())};
          },
          s.name);
    }
  }
}

TEST(AttentionPlaces, LseIsTheLogOfTheSumAndMinusInfinityWithoutKeys) {
  at::manual_seed(2);
  for (const ShapeWithPositions& s : shapes()) {
    for (const Case& c : kAttentionCases) {
      Tensors in = inputs_of(s);
      for (at::Tensor& x : in) x = x.to(c.dtype);
      const auto actual = attention_forward(in[0], in[1], in[2], s.setup, c.path);
      const auto expected = reference_attention(in[0].to(at::kDouble), in[1].to(at::kDouble),
                                                in[2].to(at::kDouble), s.setup);

      const auto blind = expected.lse == -kInfinity;
      EXPECT_TRUE((actual.lse == -kInfinity).equal(blind)) << s.name << " " << name(c);
      expect_close(actual.lse.masked_fill(blind, 0), expected.lse.masked_fill(blind, 0),
                   c.tolerance, s.name);
      EXPECT_TRUE(actual.out.masked_select(blind.unsqueeze(-1)).eq(0).all().item<bool>());
    }
  }
}

TEST(AttentionPlaces, BlocksOfKeysMergeToTheWholeAndTheirGradientsSum) {
  at::manual_seed(3);
  // The first queries see no key of the second chunk, and some see no key of either.
  const RowPositions queries{{{20, 30}, {70, 40}}};
  const RowPositions blocks[2]{{{{30, 40}, {100, 10}}}, {{{75, 20}}}};
  const RowBounds bounds{{0, 40, 110}};
  for (const Case& c : kAttentionCases) {
    const auto q = random({1, 4, 70, 32}).to(c.dtype);
    const auto incoming = random({1, 4, 70, 32}).to(c.dtype);
    Tensors k{random({1, 2, 50, 32}).to(c.dtype), random({1, 2, 20, 32}).to(c.dtype)};
    Tensors v{random({1, 2, 50, 32}).to(c.dtype), random({1, 2, 20, 32}).to(c.dtype)};
    const auto setup = [&](std::size_t block) {
      return AttentionSetup{0.2, {}, bounds, queries, blocks[block], /*wide=*/true};
    };
    AttentionSetup both{0.2, {}, bounds, queries, blocks[0]};
    both.key_positions[0].insert(both.key_positions[0].end(), blocks[1][0].begin(),
                                 blocks[1][0].end());

    AttentionOutput sum = attention_forward(q, k[0], v[0], setup(0), c.path);
    merge_attention(sum, attention_forward(q, k[1], v[1], setup(1), c.path));
    const auto first = attention_backward(incoming, q, k[0], v[0], sum, setup(0), c.path);
    const auto second = attention_backward(incoming, q, k[1], v[1], sum, setup(1), c.path);

    Tensors exact;
    for (const auto& x : {q, at::cat({k[0], k[1]}, 2), at::cat({v[0], v[1]}, 2)})
      exact.push_back(x.to(at::kDouble).requires_grad_());
    const auto whole = reference_attention(exact[0], exact[1], exact[2], both);
    const auto grads = torch::autograd::grad({whole.out}, exact, {incoming.to(at::kDouble)});
    const auto wide = c.dtype == at::kDouble ? at::kDouble : at::kFloat;
    EXPECT_EQ(sum.out.scalar_type(), wide);
    EXPECT_EQ(first.k.scalar_type(), wide);
    expect_close(sum.out, whole.out.detach(), c.tolerance, "out " + name(c));
    expect_close(first.q + second.q, grads[0], c.tolerance, "q " + name(c));
    expect_close(at::cat({first.k, second.k}, 2), grads[1], c.tolerance, "k " + name(c));
    expect_close(at::cat({first.v, second.v}, 2), grads[2], c.tolerance, "v " + name(c));
  }
}

TEST(AttentionPlaces, GradientsAreFiniteDifferences) {
  at::manual_seed(4);
  constexpr double kStep = 1e-6;
  for (const ShapeWithPositions& s : shapes()) {
    Tensors in = inputs_of(s);
    for (at::Tensor& x : in) x = x * 0.5;
    const auto incoming = random(in[0].sizes());
    const auto value = [&](const Tensors& at_point) {
      return (attention_forward(at_point[0], at_point[1], at_point[2], s.setup).out * incoming)
          .sum()
          .item<double>();
    };
    const auto forward = attention_forward(in[0], in[1], in[2], s.setup);
    const auto grads = attention_backward(incoming, in[0], in[1], in[2], forward, s.setup);

    for (std::size_t i = 0; i < in.size(); ++i) {
      const auto direction = random(in[i].sizes());
      Tensors up = in;
      Tensors down = in;
      up[i] = in[i] + kStep * direction;
      down[i] = in[i] - kStep * direction;
      const auto& grad = i == 0 ? grads.q : i == 1 ? grads.k : grads.v;
      const double along = (grad * direction).sum().item<double>();
      EXPECT_NEAR((value(up) - value(down)) / (2 * kStep), along, 1e-6 * (1 + std::abs(along)))
          << s.name << " input " << i;
    }
  }
}

TEST(AttentionPlaces, WholeRowsNamedOrNotAreTheSameBits) {
  at::manual_seed(5);
  const RowBounds bounds{{0, 70, 150}, {0, 150}};
  for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
    const auto q = random({2, 4, 150, 64}).to(dtype);
    const auto k = random({2, 2, 150, 64}).to(dtype);
    const auto v = random({2, 2, 150, 64}).to(dtype);
    const RowPositions whole{{{0, 150}}, {{0, 100}, {100, 50}}};
    const AttentionSetup unnamed{0.125, {}, bounds};
    const AttentionSetup named{0.125, {}, bounds, whole, whole};

    const auto a = attention_forward(q, k, v, unnamed);
    const auto b = attention_forward(q, k, v, named);
    const auto da = attention_backward(q, q, k, v, a, unnamed);
    const auto db = attention_backward(q, q, k, v, b, named);

    EXPECT_TRUE(a.out.equal(b.out) && a.lse.equal(b.lse)) << dtype;
    EXPECT_TRUE(da.q.equal(db.q) && da.k.equal(db.k) && da.v.equal(db.v)) << dtype;
  }
}

/// Returns the mask [queries, keys] of one row, from a plan.
at::Tensor pairs_of(const AttentionPlan& plan, std::int64_t num_queries, std::int64_t num_keys) {
  auto pairs = at::zeros({num_queries, num_keys}, at::kInt);
  for (const DocumentPlan& document : plan) {
    std::vector<std::int64_t> keys;
    for (const TokenRange& range : document.keys)
      for (std::int64_t i = 0; i < range.length; ++i) keys.push_back(range.first + i);
    EXPECT_EQ(static_cast<std::int64_t>(keys.size()), document.num_keys);
    for (const QueryPart& part : document.queries) {
      for (std::int64_t i = 0; i < part.tokens.length; ++i) {
        const KeyInterval seen = part.seen(i);
        EXPECT_EQ(seen.begin == seen.end, part.sees_no_key());
        for (std::int64_t j = seen.begin; j < seen.end; ++j)
          pairs[part.tokens.first + i][keys.at(static_cast<std::size_t>(j))] += 1;
      }
      const auto of_part = pairs.narrow(0, part.tokens.first, part.tokens.length).sum();
      EXPECT_EQ(part.num_pairs(), of_part.item<std::int64_t>());
    }
  }
  return pairs;
}

TEST(AttentionPlan, HasThePairsOfTheMaskForRandomPlaces) {
  std::mt19937 random_bits(7);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random_bits() % static_cast<std::uint32_t>(n));
  };
  // Chunks of up to 4 positions in random order: each side takes some of them.
  const auto side = [&](std::int64_t length) {
    std::vector<TokenRange> ranges;
    for (std::int64_t place = 0; place < length;) {
      const std::int64_t size = std::min(length - place, 1 + below(4));
      if (below(3) > 0) ranges.push_back({place, size});
      place += size;
    }
    if (ranges.empty()) ranges.push_back({0, 1});
    std::shuffle(ranges.begin(), ranges.end(), random_bits);
    return ranges;
  };
  for (int round = 0; round < 600; ++round) {
    const std::int64_t length = 1 + below(24);
    AttentionSetup setup{1.0, {.causal = below(4) > 0}, {{0}}, {side(length)}, {side(length)}};
    for (std::int64_t edge = 1; edge < length; ++edge)
      if (below(5) == 0) setup.bounds[0].push_back(edge);
    setup.bounds[0].push_back(length);
    if (round % 2 == 1) setup.mask.window = 1 + below(length + 2);
    const auto queries = tokens_of(setup.query_positions, setup.bounds, 0, 0);
    const auto keys = tokens_of(setup.key_positions, setup.bounds, 0, 0);
    const auto num_queries = static_cast<std::int64_t>(queries.size());
    const auto num_keys = static_cast<std::int64_t>(keys.size());
    auto expected = at::zeros({num_queries, num_keys}, at::kInt);
    for (std::int64_t i = 0; i < num_queries; ++i) {
      for (std::int64_t j = 0; j < num_keys; ++j) {
        const Token& query = queries[static_cast<std::size_t>(i)];
        const Token& key = keys[static_cast<std::size_t>(j)];
        if (sees(setup, query, key)) expected[i][j] = 1;
      }
    }

    const auto plan = plan_attention(setup, 1, num_queries, num_keys);

    ASSERT_TRUE(pairs_of(plan, num_queries, num_keys).equal(expected)) << "round " << round;
    ASSERT_TRUE(attention_mask(setup, 1, 0, at::kCPU)[0].to(at::kInt).equal(expected));
    ASSERT_EQ(sees_nothing(plan), expected.sum().item<int>() == 0);
    ASSERT_EQ(has_queries_without_keys(plan), expected.sum(1).eq(0).any().item<bool>());
  }
}

TEST(AttentionPlan, HasOneDiagonalPerDocumentForAWholeRow) {
  const AttentionPlan plan = plan_attention({1.0, {}, {{0, 3, 8}}}, 1, 8, 8);

  ASSERT_EQ(plan.size(), 2U);
  EXPECT_EQ(plan[1].keys, (std::vector<TokenRange>{{3, 5}}));
  EXPECT_EQ(plan[1].queries, (std::vector<QueryPart>{{{3, 5}, {0, 1}, false, true}}));
}

TEST(AttentionPlan, HasADiagonalAndABandForAWindow) {
  const AttentionPlan plan = plan_attention({.mask = {.window = 3}}, 1, 8, 8);

  ASSERT_EQ(plan.size(), 1U);
  EXPECT_EQ(plan[0].queries,
            (std::vector<QueryPart>{{{0, 3}, {0, 1}, false, true}, {{3, 5}, {1, 4}, true, true}}));
  EXPECT_EQ((AttentionMask{.window = 3}.keys_of_last_query(8)), 3);
  EXPECT_EQ((AttentionMask{.window = 30}.keys_of_last_query(8)), 8);
  EXPECT_EQ(AttentionMask{}.keys_of_last_query(8), 8);
}

TEST(AttentionPlan, RefusesPlacesThatDoNotFit) {
  const auto refused = [](const AttentionSetup& setup) {
    EXPECT_THROW(plan_attention(setup, 1, 4, 4), Error);
  };
  refused({1.0, {}, {}, {{{0, 3}}}, {{{0, 4}}}});            // 3 positions, 4 queries
  refused({1.0, {}, {}, {{{0, 4}}}, {{{0, 4}}, {{0, 4}}}});  // two rows
  refused({1.0, {}, {}, {{{-1, 4}}}, {{{0, 4}}}});           // before the row
  refused({1.0, {}, {{0, 4}}, {{{1, 4}}}, {{{0, 4}}}});      // past its bounds
  refused({1.0, {}, {}, {{{0, 4}}}, {{{0, 2}, {1, 2}}}});    // two keys at position 1
  EXPECT_THROW(plan_attention({}, 1, 3, 4), Error) << "different lengths and no places";
  EXPECT_THROW(plan_attention({.mask = {.window = -1}}, 1, 4, 4), Error);
}

TEST(MergeAttention, WithoutKeysOnBothSidesIsEmpty) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    const auto options = at::TensorOptions().dtype(dtype);
    AttentionOutput sum{at::zeros({1, 1, 2, 4}, options), at::full({1, 1, 2}, -kInfinity, options)};
    const AttentionOutput part{
        at::tensor({0.0, 0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0}, options).view({1, 1, 2, 4}),
        at::tensor({-kInfinity, 0.5}, options).view({1, 1, 2})};

    merge_attention(sum, part);

    EXPECT_TRUE(sum.out.equal(part.out)) << sum.out;
    EXPECT_TRUE(sum.lse.equal(part.lse)) << sum.lse;
  }
}

}  // namespace
}  // namespace trireme::ops::testing
