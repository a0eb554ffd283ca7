#include "core/error.hpp"
#include "ops/attention/varlen.hpp"
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
  return {scale, call.causal, {}, {{{m - std::min(n, m), n}}}, {{{0, m}}}};
}

template <class Body>
void for_sequences(const VarlenCall& call, const Body& body) {
  EXPECT_EQ(call.query_offsets.size(), call.key_offsets.size());
  for (std::size_t s = 1; s < call.query_offsets.size(); ++s) {
    const std::int64_t queries = call.query_offsets[s] - call.query_offsets[s - 1];
    const std::int64_t keys = call.key_offsets[s] - call.key_offsets[s - 1];
    EXPECT_GT(queries, 0);
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
    const auto part = plain_forward(as_row(q, q0, q1), as_row(k, k0, k1), as_row(v, k0, k1),
                                    sequence_setup(call, scale, q1 - q0, k1 - k0));
    result.out.narrow(0, q0, q1 - q0).copy_(part.out[0].transpose(0, 1));
    result.lse.narrow(1, q0, q1 - q0).copy_(part.lse[0]);
  });
  return result;
}

AttentionGrads loop_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const AttentionOutput& forward,
                             const VarlenCall& call, double scale) {
  AttentionGrads grads{at::empty_like(q), at::empty_like(k), at::empty_like(v)};
  for_sequences(call, [&](std::int64_t q0, std::int64_t q1, std::int64_t k0, std::int64_t k1) {
    const auto part = plain_backward(
        as_row(grad_out, q0, q1), as_row(q, q0, q1), as_row(k, k0, k1), as_row(v, k0, k1),
        {as_row(forward.out, q0, q1), forward.lse.narrow(1, q0, q1 - q0).unsqueeze(0)},
        sequence_setup(call, scale, q1 - q0, k1 - k0));
    grads.q.narrow(0, q0, q1 - q0).copy_(part.q[0].transpose(0, 1));
    grads.k.narrow(0, k0, k1 - k0).copy_(part.k[0].transpose(0, 1));
    grads.v.narrow(0, k0, k1 - k0).copy_(part.v[0].transpose(0, 1));
  });
  return grads;
}

const VarlenKernel kLoops{loop_forward, loop_backward};

TEST(AttentionVarlen, IsTheSameFunctionForEveryPlan) {
  at::manual_seed(1);
  const std::vector<AttentionSetup> setups{
      {0.2, true, {}},
      {0.2, true, {{0, 5, 12}, {0, 12}}},
      {0.2, false, {{0, 5, 12}, {0, 1, 12}}},
      {0.2, true, {}, {{{2, 10}, {20, 2}}, {{0, 12}}}, {{{12, 6}, {0, 6}}, {{4, 12}}}},
      {0.2, true, {{0, 3, 24}, {0, 24}}, {{{0, 6}, {18, 6}}, {{12, 12}}}, {{{6, 12}}, {{0, 12}}}},
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

TEST(AttentionVarlen, RefusesWindowsRatherThanIgnoringThem) {
  const auto x = random({1, 1, 12, 8});
  AttentionSetup setup{1.0, true, {}};
  setup.window = 4;

  EXPECT_THROW(varlen_forward(kLoops, x, x, x, setup), Error);
  EXPECT_FALSE(flash_applies(x, setup));
}

TEST(AttentionVarlen, OffsetsOfPackedRowsAreTheirBoundariesAndNothingIsGathered) {
  const AttentionSetup setup{1.0, true, {{0, 5, 12}, {0, 12}}};

  const auto calls = varlen_calls(plan_attention(setup, 2, 12, 12), 2, 12, 12);

  ASSERT_EQ(calls.size(), 1U);
  EXPECT_TRUE(calls[0].causal);
  EXPECT_EQ(calls[0].query_offsets, (std::vector<std::int32_t>{0, 5, 12, 24}));
  EXPECT_EQ(calls[0].key_offsets, calls[0].query_offsets);
  EXPECT_EQ(calls[0].queries, (std::vector<TokenRange>{{0, 24}}));
  EXPECT_EQ(calls[0].keys, calls[0].queries);
  EXPECT_EQ(calls[0].longest_queries, 12);
}

}  // namespace
}  // namespace trireme::ops::testing
