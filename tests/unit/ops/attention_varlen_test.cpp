#include <random>

#include "core/error.hpp"
#include "core/number.hpp"
#include "ops/attention/memo.hpp"
#include "unit/ops/attention_reference.hpp"

/// Tests the host part of the varlen kernels with a kernel of plain loops that fulfils their
/// contract.
namespace trireme::ops::testing {
namespace {

/// Returns one sequence as one row: q [n, H, D] to [1, H, n, D].
at::Tensor as_row(const at::Tensor& x, std::int64_t first, std::int64_t end) {
  return x.narrow(0, first, end - first).transpose(0, 1).unsqueeze(0).to(at::kDouble);
}

/// Returns the setup of one sequence: query i of n sees keys up to m - n + i of m, so the diagonal
/// ends at the last key.
AttentionSetup sequence_setup(const VarlenCall& call, double scale, std::int64_t n,
                              std::int64_t m) {
  return {scale, {.causal = call.causal}, {}, {{{m - std::min(n, m), n}}}, {{{0, m}}}};
}

/// Returns the part of a sequence of m keys that query i of n sees through the window of the call.
KeyInterval window_of(const VarlenCall& call, std::int64_t i, std::int64_t n, std::int64_t m) {
  const std::int64_t position = m - n + i;
  return {std::max<std::int64_t>(0, position - call.window_left), call.causal ? position + 1 : m};
}

/// Calls `body(first query, number of queries, keys, setup)` for parts of one sequence: for every
/// query alone if there is a window.
template <class Body>
void for_parts(const VarlenCall& call, double scale, std::int64_t n, std::int64_t m,
               const Body& body) {
  if (call.window_left < 0) {
    body(0, n, KeyInterval{0, m}, sequence_setup(call, scale, n, m));
    return;
  }
  for (std::int64_t i = 0; i < n; ++i) {
    const KeyInterval seen = window_of(call, i, n, m);
    const std::int64_t keys = seen.end - seen.begin;
    body(i, 1, seen, AttentionSetup{scale, {.causal = false}, {}, {{{0, 1}}}, {{{0, keys}}}});
  }
}

template <class Body>
void for_sequences(const VarlenCall& call, const Body& body) {
  EXPECT_EQ(call.query_offsets.size(), call.key_offsets.size());
  for (std::size_t s = 1; s < call.query_offsets.size(); ++s) {
    const std::int64_t queries = call.query_offsets[s] - call.query_offsets[s - 1];
    const std::int64_t keys = call.key_offsets[s] - call.key_offsets[s - 1];
    if (queries == 0) {  // padding of FixedCalls
      EXPECT_EQ(keys, 0);
      EXPECT_EQ(call.query_offsets[s], call.query_offsets.back());
      continue;
    }
    EXPECT_GE(keys, call.causal ? queries : 1) << "a kernel gives lse +inf without keys";
    EXPECT_LE(queries, call.longest_queries);
    EXPECT_LE(keys, call.longest_keys);
    body(call.query_offsets[s - 1], call.query_offsets[s], call.key_offsets[s - 1],
         call.key_offsets[s]);
  }
}

AttentionOutput loop_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const VarlenCall& call, double scale) {
  EXPECT_EQ(q.size(0), call.query_offsets.back());
  EXPECT_EQ(k.size(0), call.key_offsets.back());
  AttentionOutput result{at::empty(q.sizes(), q.options()),
                         at::empty({q.size(1), q.size(0)}, q.options())};
  for_sequences(call, [&](std::int64_t q0, std::int64_t q1, std::int64_t k0, std::int64_t k1) {
    for_parts(call, scale, q1 - q0, k1 - k0, [&](auto first, auto n, auto keys, const auto& setup) {
      const auto begin = k0 + keys.begin;
      const auto end = k0 + keys.end;
      const auto part = plain_forward(as_row(q, q0 + first, q0 + first + n), as_row(k, begin, end),
                                      as_row(v, begin, end), setup);
      result.out.narrow(0, q0 + first, n).copy_(part.out[0].transpose(0, 1));
      result.lse.narrow(1, q0 + first, n).copy_(part.lse[0]);
    });
  });
  return result;
}

AttentionGrads loop_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const AttentionOutput& forward,
                             const VarlenCall& call, double scale) {
  AttentionGrads grads{at::empty_like(q), at::zeros_like(k), at::zeros_like(v)};
  for_sequences(call, [&](std::int64_t q0, std::int64_t q1, std::int64_t k0, std::int64_t k1) {
    for_parts(call, scale, q1 - q0, k1 - k0, [&](auto first, auto n, auto keys, const auto& setup) {
      const auto at = q0 + first;
      const auto begin = k0 + keys.begin;
      const auto end = k0 + keys.end;
      const auto part = plain_backward(
          as_row(grad_out, at, at + n), as_row(q, at, at + n), as_row(k, begin, end),
          as_row(v, begin, end),
          {as_row(forward.out, at, at + n), forward.lse.narrow(1, at, n).unsqueeze(0)}, setup);
      grads.q.narrow(0, at, n).copy_(part.q[0].transpose(0, 1));
      grads.k.narrow(0, begin, end - begin).add_(part.k[0].transpose(0, 1));
      grads.v.narrow(0, begin, end - begin).add_(part.v[0].transpose(0, 1));
    });
  });
  return grads;
}

const VarlenKernel kLoops{loop_forward, loop_backward};

TEST(AttentionVarlen, IsTheSameFunctionForEveryPlan) {
  at::manual_seed(1);
  const std::vector<AttentionSetup> setups{
      {0.2, {}, {}},
      {0.2, {}, {{0, 5, 12}, {0, 12}}},
      {0.2, {.causal = false}, {{0, 5, 12}, {0, 1, 12}}},
      {0.2, {}, {}, {{{2, 10}, {20, 2}}, {{0, 12}}}, {{{12, 6}, {0, 6}}, {{4, 12}}}},
      {0.2, {}, {{0, 3, 24}, {0, 24}}, {{{0, 6}, {18, 6}}, {{12, 12}}}, {{{6, 12}}, {{0, 12}}}},
      {.scale = 0.2, .mask = {.window = 4}},
      {.scale = 0.2, .mask = {.window = 1}},
      {.scale = 0.2, .mask = {.window = 30}},
      {.scale = 0.2, .mask = {.window = 4}, .bounds = {{0, 5, 12}, {0, 3, 12}}},
      {.scale = 0.2,
       .mask = {.window = 5},
       .query_positions = {{{2, 10}, {20, 2}}, {{0, 12}}},
       .key_positions = {{{12, 6}, {0, 6}}, {{4, 12}}}},
      {.scale = 0.2,
       .mask = {.window = 9},
       .bounds = {{0, 3, 24}, {0, 24}},
       .query_positions = {{{0, 6}, {18, 6}}, {{12, 12}}},
       .key_positions = {{{6, 12}}, {{0, 12}}}},
  };
  for (std::size_t i = 0; i < setups.size(); ++i) {
    const auto q = random({2, 4, 12, 8});
    const auto k = random({2, 2, 12, 8});
    const auto v = random({2, 2, 12, 8});
    const auto incoming = random({2, 4, 12, 8});
    const auto expected = plain_forward(q, k, v, setups[i]);
    const auto expected_grads = plain_backward(incoming, q, k, v, expected, setups[i]);

    const auto actual = varlen_forward(kLoops, q, k, v, setups[i]);
    const auto grads = varlen_backward(kLoops, incoming, q, k, v, actual, setups[i]);

    const auto what = "setup " + std::to_string(i);
    const auto blind = expected.lse.isinf();
    EXPECT_TRUE(actual.lse.isneginf().equal(blind)) << what;
    expect_close(actual.lse.masked_fill(blind, 0), expected.lse.masked_fill(blind, 0), 1e-12, what);
    expect_close(actual.out, expected.out, 1e-12, what);
    EXPECT_TRUE(actual.out.transpose(1, 2).is_contiguous());
    expect_close(grads.q, expected_grads.q, 1e-12, what + " q");
    expect_close(grads.k, expected_grads.k, 1e-12, what + " k");
    expect_close(grads.v, expected_grads.v, 1e-12, what + " v");
  }
}

TEST(AttentionVarlen, AWindowOverPackedRowsIsOneCallWithoutAGather) {
  const AttentionSetup setup{.mask = {.window = 4}, .bounds = {{0, 5, 12}, {0, 3, 12}}};

  const auto calls = varlen_calls(plan_attention(setup, 2, 12, 12), 2, 12, 12);

  ASSERT_EQ(calls.size(), 1U);
  EXPECT_TRUE(calls[0].causal);
  EXPECT_EQ(calls[0].window_left, 3);
  EXPECT_EQ(calls[0].query_offsets, (std::vector<std::int32_t>{0, 5, 12, 15, 24}));
  EXPECT_EQ(calls[0].key_offsets, calls[0].query_offsets);
  EXPECT_EQ(calls[0].queries, (std::vector<TokenRange>{{0, 24}}));
}

TEST(AttentionVarlen, OffsetsOfPackedRowsAreTheirBoundariesAndNothingIsGathered) {
  const AttentionSetup setup{1.0, {}, {{0, 5, 12}, {0, 12}}};

  const auto calls = varlen_calls(plan_attention(setup, 2, 12, 12), 2, 12, 12);

  ASSERT_EQ(calls.size(), 1U);
  EXPECT_TRUE(calls[0].causal);
  EXPECT_EQ(calls[0].query_offsets, (std::vector<std::int32_t>{0, 5, 12, 24}));
  EXPECT_EQ(calls[0].key_offsets, calls[0].query_offsets);
  EXPECT_EQ(calls[0].queries, (std::vector<TokenRange>{{0, 24}}));
  EXPECT_EQ(calls[0].keys, calls[0].queries);
  EXPECT_EQ(calls[0].longest_queries, 12);
}

/// Returns `batch` rows of random documents.
RowBounds random_bounds(std::mt19937& random, std::int64_t batch, std::int64_t length) {
  RowBounds bounds;
  for (std::int64_t row = 0; row < batch; ++row) {
    bounds.push_back({0});
    while (bounds.back().back() < length) {
      const auto longest = static_cast<std::uint32_t>(length - bounds.back().back());
      bounds.back().push_back(bounds.back().back() + 1 +
                              static_cast<std::int64_t>(random() % longest));
    }
  }
  return bounds;
}

TEST(FixedCalls, EmptySequencesAndLongerBoundsChangeNoResult) {
  at::manual_seed(1);
  std::mt19937 draws(1);
  for (const std::int64_t window : {0, 1, 4, 11, 12, 30}) {
    const auto fixed = std::make_shared<FixedCalls>(FixedShape{2, 12, 32, 12}, at::kCPU);
    std::vector<at::Tensor> starts;
    for (int trial = 0; trial < 4; ++trial) {
      AttentionSetup setup{.scale = 0.2, .mask = {.window = window}};
      if (trial > 0) setup.bounds = random_bounds(draws, 2, 12);
      AttentionSetup padded = setup;
      padded.memo = std::make_shared<AttentionMemo>();
      fixed->set(setup.bounds);
      padded.memo->fix(fixed);
      const auto q = random({2, 4, 12, 8});
      const auto k = random({2, 2, 12, 8});
      const auto v = random({2, 2, 12, 8});
      const auto incoming = random({2, 4, 12, 8});
      const auto expected = plain_forward(q, k, v, setup);
      const auto expected_grads = plain_backward(incoming, q, k, v, expected, setup);

      const auto actual = varlen_forward(kLoops, q, k, v, padded);
      const auto grads = varlen_backward(kLoops, incoming, q, k, v, actual, padded);

      const auto what = formatted("window {}, trial {}", window, trial);
      expect_close(actual.lse, expected.lse, 1e-12, what);
      expect_close(actual.out, expected.out, 1e-12, what);
      expect_close(grads.q, expected_grads.q, 1e-12, what + " q");
      expect_close(grads.k, expected_grads.k, 1e-12, what + " k");
      expect_close(grads.v, expected_grads.v, 1e-12, what + " v");

      // The kernel of a GPU reads the tensor, which must stay in place.
      const VarlenCall& call = placed_calls(padded, 2, 12, 12, at::kCPU)->front();
      EXPECT_TRUE(call.query_starts.equal(at::tensor(call.query_offsets, at::kInt))) << what;
      EXPECT_TRUE(call.key_starts.is_same(call.query_starts)) << what;
      starts.push_back(call.query_starts);
      EXPECT_TRUE(starts.front().is_same(starts.back())) << what;
      EXPECT_EQ(call.longest_queries, 12);
      EXPECT_FALSE(call.query_tokens.defined());
    }
  }
}

TEST(FixedCalls, RefusesOtherShapesAndMasksAndTooManyOrTooLongDocuments) {
  FixedCalls fixed({.batch = 2, .length = 12, .documents = 4, .longest = 11}, at::kCPU);
  EXPECT_THROW((void)fixed.calls({.causal = false}, 2, 12, 12), Error);
  EXPECT_THROW((void)fixed.calls({}, 1, 12, 12), Error);
  EXPECT_THROW((void)fixed.calls({}, 2, 12, 13), Error);
  EXPECT_THROW(fixed.set({{0, 1, 2, 12}, {0, 5, 12}}), Error);
  fixed.set({{0, 1, 12}, {0, 5, 12}});
  EXPECT_EQ(fixed.calls({}, 2, 12, 12)->front().query_offsets,
            (std::vector<std::int32_t>{0, 1, 12, 17, 24}));
  EXPECT_EQ(fixed.calls({}, 2, 12, 12)->front().longest_queries, 11);
  EXPECT_EQ(fixed.calls({.window = 3}, 2, 12, 12)->front().longest_keys, 11);
  EXPECT_THROW(fixed.set({{0, 12}, {0, 5, 12}}), Error);
  EXPECT_THROW(fixed.set({}), Error);
}

TEST(AttentionMemo, KeepsOnePlanAndOneUploadForEverySetup) {
  AttentionSetup setup{.bounds = {{0, 5, 12}}, .memo = make_attention_memo()};
  const auto calls = placed_calls(setup, 1, 12, 12, at::kCPU);
  const auto plan = planned_attention(setup, 1, 12, 12);

  EXPECT_EQ(placed_calls(setup, 1, 12, 12, at::kCPU), calls);
  EXPECT_EQ(planned_attention(setup, 1, 12, 12), plan);
  setup.scale = 3;  // not a part of the plan
  EXPECT_EQ(planned_attention(setup, 1, 12, 12), plan);

  setup.bounds = {{0, 6, 12}};
  EXPECT_EQ(placed_calls(setup, 1, 12, 12, at::kCPU)->front().query_offsets,
            (std::vector<std::int32_t>{0, 6, 12}));
  setup.mask.window = 4;
  EXPECT_EQ(placed_calls(setup, 1, 12, 12, at::kCPU)->front().window_left, 3);
  setup.mask.causal = false;
  setup.mask.window = 0;
  EXPECT_FALSE(placed_calls(setup, 1, 12, 12, at::kCPU)->front().causal);
  setup.bounds.clear();
  EXPECT_EQ(planned_attention(setup, 1, 10, 10)->front().num_keys, 10);
  setup.query_positions = {{{0, 4}}};
  setup.key_positions = {{{0, 10}}};
  EXPECT_EQ(planned_attention(setup, 1, 4, 10)->front().queries.front().tokens.length, 4);
}

}  // namespace
}  // namespace trireme::ops::testing
