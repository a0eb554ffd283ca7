#pragma once
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "ops/attention.hpp"
#include "unit/ops/support.hpp"

/// Computes attention query by query in fp64, without mask, plan or shared code; autograd
/// differentiates it.
namespace trireme::ops::testing {

// bf16 rounds weights and their gradients before the second matmul, so the bound is more than twice
// that of one rounding.
inline const std::vector<Case> kAttentionCases{
    {Path::plain, at::kDouble, 1e-11},  {Path::fast, at::kDouble, 1e-11},
    {Path::plain, at::kFloat, 1e-5},    {Path::fast, at::kFloat, 1e-5},
    {Path::plain, at::kBFloat16, 1e-2}, {Path::fast, at::kBFloat16, 2e-2}};

struct Token {
  std::int64_t place;
  std::int64_t document;
};

inline std::vector<Token> tokens_of(const RowPositions& places, const RowBounds& bounds,
                                    std::size_t row, std::int64_t length) {
  std::vector<std::int64_t> at;
  if (places.empty()) {
    for (std::int64_t t = 0; t < length; ++t) at.push_back(t);
  } else {
    for (const TokenRange& range : places[row])
      for (std::int64_t i = 0; i < range.length; ++i) at.push_back(range.first + i);
  }
  std::vector<Token> tokens;
  for (const std::int64_t place : at) {
    std::int64_t document = 0;
    if (!bounds.empty())
      for (const std::int64_t edge : bounds[row]) document += edge <= place ? 1 : 0;
    tokens.push_back({place, document});
  }
  return tokens;
}

/// Computes documents, causality and the window from their definitions.
inline bool sees(const AttentionSetup& setup, const Token& query, const Token& key) {
  const std::int64_t distance = query.place - key.place;
  return query.document == key.document && (!setup.mask.causal || distance >= 0) &&
         (setup.mask.window == 0 || std::abs(distance) < setup.mask.window);
}

struct Reference {
  at::Tensor out;  // [B, H, Tq, D]
  at::Tensor lse;  // [B, H, Tq]
};

inline Reference reference_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                     const AttentionSetup& setup) {
  const auto readers = q.size(1) / k.size(1);
  Tensors outs;
  Tensors lses;
  for (std::int64_t b = 0; b < q.size(0); ++b) {
    const auto row = static_cast<std::size_t>(b);
    const auto queries = tokens_of(setup.query_positions, setup.bounds, row, q.size(2));
    const auto keys = tokens_of(setup.key_positions, setup.bounds, row, k.size(2));
    const auto all_keys = k[b].repeat_interleave(readers, 0);  // [H, Tk, D]
    const auto all_values = v[b].repeat_interleave(readers, 0);
    for (std::size_t t = 0; t < queries.size(); ++t) {
      std::vector<std::int64_t> seen;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        if (sees(setup, queries[t], keys[i])) seen.push_back(static_cast<std::int64_t>(i));
      }
      if (seen.empty()) {
        outs.push_back(at::zeros({q.size(1), q.size(3)}, at::kDouble));
        lses.push_back(at::full({q.size(1)}, -INFINITY, at::kDouble));
        continue;
      }
      const auto index = at::tensor(seen, at::kLong);
      const auto query = q[b].select(1, static_cast<std::int64_t>(t)).unsqueeze(2);  // [H, D, 1]
      auto scores = at::bmm(all_keys.index_select(1, index), query) * setup.scale;
      if (setup.softcap > 0) scores = at::tanh(scores / setup.softcap) * setup.softcap;
      const auto sums = scores.exp().sum(1, /*keepdim=*/true);  // [H, 1, 1]
      const auto weights = (scores.exp() / sums).transpose(1, 2);
      outs.push_back(at::bmm(weights, all_values.index_select(1, index)).squeeze(1));
      lses.push_back(sums.log().flatten());
    }
  }
  // Reshapes [B Tq, H, ..] to [B, H, Tq, ..].
  const auto rows_of = [&](const Tensors& each) {
    return at::stack(each).unflatten(0, {q.size(0), q.size(2)}).transpose(1, 2);
  };
  return {rows_of(outs), rows_of(lses)};
}

}  // namespace trireme::ops::testing
