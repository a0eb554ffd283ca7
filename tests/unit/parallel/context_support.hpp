#pragma once
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "parallel/context/attention.hpp"
#include "parallel/context/sequence_sharding.hpp"

/// Compares context-parallel attention with one process. Every rank of a group calls it, over
/// threads and over MPI.
namespace trireme::testing {

struct ContextCase {
  std::string name;
  std::int64_t B, H, Hk, T, D;
  bool causal;
  ops::RowBounds bounds;
  std::int64_t window = 0;

  [[nodiscard]] ops::AttentionSetup rows(double scale) const {
    ops::AttentionSetup all{scale, {.causal = causal}, bounds};
    all.mask.window = window;
    return all;
  }
};

/// Lengths for 2, 3 and 4 ranks; numbers of heads for ulysses.
inline std::vector<ContextCase> context_cases() {
  return {
      {"one document a row", 2, 12, 12, 48, 8, true, {}},
      {"documents across edges of chunks",
       2,
       12,
       6,
       48,
       8,
       true,
       {{0, 5, 20, 47, 48}, {0, 13, 48}}},
      {"a document a chunk: whole blocks masked",
       1,
       12,
       4,
       48,
       8,
       true,
       {{0, 6, 8, 12, 16, 18, 24, 30, 32, 36, 40, 42, 48}}},
      {"key heads fewer than ranks", 2, 12, 1, 24, 4, true, {{0, 10, 24}, {0, 24}}},
      {"key heads that do not divide into ranks", 1, 12, 3, 24, 4, true, {{0, 7, 24}}},
      {"not causal", 1, 12, 2, 24, 4, false, {{0, 9, 24}}},
      {"a window of one key", 1, 12, 12, 24, 4, true, {}, 1},
      {"a window inside chunks", 1, 12, 6, 48, 4, true, {}, 4},
      {"a window across chunks and documents",
       2,
       12,
       6,
       48,
       4,
       true,
       {{0, 5, 20, 48}, {0, 48}},
       17},
      {"a window longer than the row", 1, 12, 4, 24, 4, true, {{0, 7, 24}}, 100},
  };
}

struct Whole {
  at::Tensor q, k, v, incoming;
};

/// Returns tensors that are equal on every rank: the ranks of a test may be threads that share
/// ATen's default generator.
inline Whole whole_of(const ContextCase& c, at::ScalarType dtype) {
  auto generator = at::detail::createCPUGenerator(17);
  const auto draw = [&](std::int64_t heads) {
    return at::randn({c.B, heads, c.T, c.D}, generator, at::TensorOptions(at::kDouble)).to(dtype);
  };
  return {draw(c.H), draw(c.Hk), draw(c.Hk), draw(c.H)};
}

/// Takes the tokens of some positions of [B, heads, T, D].
inline at::Tensor at_places(const at::Tensor& x, const ops::RowPositions& places) {
  return parallel::select_positions(x.transpose(1, 2), places).transpose(1, 2);
}

inline void expect_near(const at::Tensor& actual, const at::Tensor& expected, double tolerance,
                        const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const auto wanted = expected.to(at::kDouble);
  const double error = (actual.to(at::kDouble) - wanted).abs().max().item<double>();
  EXPECT_LE(error, tolerance * std::max(1.0, wanted.abs().max().item<double>())) << what;
}

/// Compares out and every gradient at this rank's positions. The incoming gradient of `idle_rank`
/// is zero.
inline void expect_as_one_process(comm::Communicator& group, const ContextCase& c,
                                  parallel::ContextAlgorithm form, parallel::ContextBalance balance,
                                  at::ScalarType dtype, ops::Path path, double tolerance,
                                  int idle_rank = -1) {
  const auto me = static_cast<std::size_t>(group.rank());
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.D));
  const ops::AttentionSetup rows = c.rows(scale);
  const parallel::ContextSetup setup{
      rows, parallel::shard_positions(balance, rows, c.B, c.T, group.size())};
  const Whole whole = whole_of(c, dtype);
  std::vector<at::Tensor> exact;
  std::vector<at::Tensor> own;
  for (const auto& x : {whole.q, whole.k, whole.v}) {
    exact.push_back(x.to(at::kDouble, false, /*copy=*/true).requires_grad_());
    own.push_back(at_places(x, setup.positions[me]).detach().clone().requires_grad_());
  }
  at::Tensor incoming = whole.incoming.to(at::kDouble, false, /*copy=*/true);
  if (idle_rank >= 0) {
    const auto& idle = setup.positions[static_cast<std::size_t>(idle_rank)];
    for (std::size_t row = 0; row < idle.size(); ++row)
      for (const auto& range : idle[row])
        incoming[static_cast<std::int64_t>(row)].narrow(1, range.first, range.length).zero_();
  }
  const auto expected = ops::attention(exact[0], exact[1], exact[2], rows, ops::Path::plain);
  const auto expected_grads = torch::autograd::grad({expected}, exact, {incoming});

  const auto out = parallel::context_attention(own[0], own[1], own[2], setup, group, form, path);
  const auto grads =
      torch::autograd::grad({out}, own, {at_places(incoming, setup.positions[me]).to(dtype)});

  const auto what = [&](const char* part) {
    return c.name + ", " + std::string(parallel::kContextForms.at(static_cast<std::size_t>(form))) +
           ", " + std::string(parallel::kContextBalances.at(static_cast<std::size_t>(balance))) +
           ", rank " + std::to_string(me) + " of " + std::to_string(group.size()) + ": " + part;
  };
  EXPECT_EQ(out.scalar_type(), dtype);
  expect_near(out.detach(), at_places(expected.detach(), setup.positions[me]), tolerance,
              what("out"));
  expect_near(grads[0], at_places(expected_grads[0], setup.positions[me]), tolerance, what("dq"));
  expect_near(grads[1], at_places(expected_grads[1], setup.positions[me]), tolerance, what("dk"));
  expect_near(grads[2], at_places(expected_grads[2], setup.positions[me]), tolerance, what("dv"));
}

inline constexpr std::array kAllForms{parallel::ContextAlgorithm::ring,
                                      parallel::ContextAlgorithm::all_gather,
                                      parallel::ContextAlgorithm::ulysses};

}  // namespace trireme::testing
