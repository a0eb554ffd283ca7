#include "model/experts/experts.hpp"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "comm/self/self_communicator.hpp"
#include "core/error.hpp"
#include "model/experts/router_balance.hpp"
#include "ops/routing.hpp"

namespace trireme::model {
namespace {

constexpr std::int64_t kMoeRows = 3;
constexpr std::int64_t kMoeLength = 11;
constexpr std::int64_t kMoeWidth = 6;

struct MoeCase {
  std::int64_t experts = 5;
  std::int64_t k = 2;
  std::int64_t shared = 0;
  std::string score = "softmax";
  bool normalize = true;
  std::string balance = "aux";
  std::string aux_loss = "sequence";
  std::string tokens = "padded";  // whole rows, padded rows, pairs
  bool again = false;             // the input is computed again

  [[nodiscard]] std::string name() const {
    return formatted("{} experts, {} a token, {} shared, {}{}, {} {}, {} tokens{}", experts, k,
                     shared, score, normalize ? " normalized" : "", balance, aux_loss, tokens,
                     again ? ", made again" : "");
  }
};

LayerContext moe_context_of(const MoeCase& c) {
  LayerContext context;
  context.config = model_preset("tiny");
  context.config.hidden_size = kMoeWidth;
  MoeConfig& moe = context.config.moe;
  moe.num_experts = c.experts;
  moe.num_experts_per_tok = c.k;
  moe.moe_intermediate_size = 7;
  moe.num_shared_experts = c.shared;
  moe.router_score = c.score;
  moe.norm_topk_prob = c.normalize;
  moe.router_balance = c.balance;
  moe.router_aux_loss = c.aux_loss;
  moe.router_aux_loss_coef = 0.7;
  return context;
}

parallel::Microbatch moe_batch_of(const MoeCase& c) {
  parallel::Microbatch batch;
  batch.tokens = at::zeros({kMoeRows, kMoeLength}, at::kLong);
  batch.training = true;
  batch.aux_weight = 1.3;
  if (c.tokens == "padded") {
    const at::Tensor lengths = at::tensor({7, 11, 1}, at::kLong).unsqueeze(1);
    batch.padding = at::arange(kMoeLength).ge(lengths);
  } else if (c.tokens == "pairs") {  // 2 pairs, and padding
    batch.num_pairs = 2;
    batch.sequence_of =
        at::arange(kMoeRows * kMoeLength).div(8, "floor").view({kMoeRows, kMoeLength});
    batch.sequence_of.masked_fill_(batch.sequence_of.ge(4), -1);
  }
  return batch;
}

/// Computes the experts in loops over tokens and experts, with LibTorch's autograd.
class Reference {
 public:
  Reference(const MoeCase& c, const std::map<std::string, at::Tensor>& weights)
      : moe_(moe_context_of(c).config.moe), weights_(weights) {}

  at::Tensor mlp(const at::Tensor& x, const at::Tensor& gate, const at::Tensor& up,
                 const at::Tensor& down) const {
    return at::linear(at::silu(at::linear(x, gate)) * at::linear(x, up), down);
  }

  /// Returns y for every token; adds to `aux_loss`.
  at::Tensor run(const at::Tensor& x, const parallel::Microbatch& batch,
                 at::Tensor& aux_loss) const {
    const at::Tensor logits = at::linear(x, weights_.at("gate.weight"));
    const at::Tensor scores =
        moe_.router_score == "softmax" ? logits.softmax(-1) : logits.sigmoid();
    std::vector<at::Tensor> rows;
    std::map<std::int64_t, at::Tensor> counts;
    std::map<std::int64_t, at::Tensor> sums;
    std::map<std::int64_t, double> lengths;
    for (std::int64_t token = 0; token < x.size(0); ++token) {
      at::Tensor wanted = scores[token];
      if (moe_.has_bias()) wanted = wanted + weights_.at("gate.e_score_correction_bias");
      const at::Tensor experts = std::get<1>(wanted.topk(moe_.num_experts_per_tok));
      const at::Tensor chosen = scores[token].index_select(0, experts);
      at::Tensor y = at::zeros({kMoeWidth}, x.options());
      for (std::int64_t i = 0; i < experts.size(0); ++i) {
        const std::int64_t e = experts[i].item<std::int64_t>();
        const at::Tensor gate_up = weights_.at("experts.gate_up_proj")[e];
        const at::Tensor gate = moe_.norm_topk_prob ? chosen[i] / chosen.sum() : chosen[i];
        y = y + gate * mlp(x[token], gate_up[0], gate_up[1], weights_.at("experts.down_proj")[e]);
      }
      if (moe_.num_shared_experts > 0) {
        y = y + mlp(x[token], weights_.at("shared_experts.gate_proj.weight"),
                    weights_.at("shared_experts.up_proj.weight"),
                    weights_.at("shared_experts.down_proj.weight"));
      }
      rows.push_back(y);
      std::int64_t sequence = token / kMoeLength;
      if (batch.padding.defined() && batch.padding.flatten()[token].item<bool>()) sequence = -1;
      if (batch.num_pairs > 0) sequence = batch.sequence_of.flatten()[token].item<std::int64_t>();
      if (sequence < 0) continue;
      if (moe_.router_aux_loss == "micro_batch") sequence = 0;
      if (!counts.contains(sequence)) {
        counts[sequence] = at::zeros({moe_.num_experts}, x.options());
        sums[sequence] = at::zeros({moe_.num_experts}, x.options());
      }
      counts[sequence].index_add_(0, experts, at::ones({experts.size(0)}, x.options()));
      const bool softmax = moe_.router_score == "softmax";
      sums[sequence] =
          sums[sequence] + (softmax ? scores[token] : scores[token] / scores[token].sum());
      lengths[sequence] += 1;
    }
    aux_loss = at::zeros({}, x.options());
    for (const auto& [sequence, count] : counts) {
      const double k =
          moe_.router_aux_loss == "sequence" ? static_cast<double>(moe_.num_experts_per_tok) : 1.0;
      const double length = lengths.at(sequence);
      const at::Tensor share = count * (static_cast<double>(moe_.num_experts) / (k * length));
      aux_loss = aux_loss + moe_.router_aux_loss_coef * batch.aux_weight *
                                (share * sums.at(sequence) / length).sum();
    }
    if (moe_.router_balance != "aux") aux_loss = aux_loss * 0;
    return at::stack(rows);
  }

 private:
  MoeConfig moe_;
  const std::map<std::string, at::Tensor>& weights_;
};

void expect_near(const at::Tensor& value, const at::Tensor& expected, const std::string& what) {
  ASSERT_EQ(value.sizes(), expected.sizes()) << what;
  const double size = std::max(expected.abs().max().item<double>(), 1e-3);
  EXPECT_LE((value - expected).abs().max().item<double>(), 1e-12 * size) << what;
}

void expect_equal_to_loops(const MoeCase& c) {
  SCOPED_TRACE(c.name());
  at::manual_seed(6);
  comm::SelfCommunicator world;
  const parallel::Mesh mesh(world, {});
  parallel::ParamRegistry registry;
  LayerContext context = moe_context_of(c);
  RouterStatistics statistics;
  context.statistics = &statistics;
  const Experts experts(registry, context, /*layer=*/1, "mlp_of_a_test.");
  registry.allocate(mesh, {at::kDouble, at::kDouble}, at::kCPU);
  registry.begin_update(1);
  statistics.reset(context.config.moe, /*num_layers=*/2, at::kCPU);
  std::map<std::string, at::Tensor> weights;
  for (parallel::ParamId id = 0; id < registry.size(); ++id) {
    registry.main(id).copy_(at::randn(registry.spec(id).shape, at::kDouble).mul(0.8));
    weights[registry.spec(id).name.substr(std::string("mlp_of_a_test.mlp.").size())] =
        registry.main(id).clone().requires_grad_();
  }
  registry.refresh_weights();
  const parallel::Microbatch batch = moe_batch_of(c);
  const at::Tensor values = at::randn({kMoeRows, kMoeLength, kMoeWidth}, at::kDouble);
  const at::Tensor incoming = at::randn({kMoeRows, kMoeLength, kMoeWidth}, at::kDouble);

  const at::Tensor x = values.clone().requires_grad_();
  const RecomputeFn again = c.again ? RecomputeFn([values] { return values; }) : RecomputeFn();
  const at::Tensor y = experts.forward(batch, x, again);
  const at::Tensor grad = torch::autograd::grad({y}, {x}, {incoming})[0];

  const at::Tensor other = values.flatten(0, 1).clone().requires_grad_();
  at::Tensor aux_loss;
  const at::Tensor expected = Reference(c, weights).run(other, batch, aux_loss);
  const at::Tensor total = (expected * incoming.flatten(0, 1)).sum() + aux_loss;
  std::vector<at::Tensor> inputs{other};
  for (const auto& [name, weight] : weights) inputs.push_back(weight);
  const auto grads = torch::autograd::grad({total}, inputs, {}, {}, false, /*allow_unused=*/true);
  expect_near(y.detach().flatten(0, 1), expected.detach(), "y");
  expect_near(grad.flatten(0, 1), grads[0], "gradient of x");
  expect_near(statistics.aux_loss, aux_loss.detach(), "auxiliary loss");
  std::size_t next = 1;
  for (const auto& [name, weight] : weights) {
    const at::Tensor& theirs = grads[next++];
    for (parallel::ParamId id = 0; id < registry.size(); ++id) {
      if (registry.spec(id).name != "mlp_of_a_test.mlp." + name) continue;
      if (registry.spec(id).sign_rate > 0) {
        const at::Tensor& counts = statistics.counts[1];
        expect_near(registry.master_grad(id),
                    counts * static_cast<double>(c.experts) - counts.sum(), name);
        continue;
      }
      expect_near(registry.master_grad(id), theirs.defined() ? theirs : at::zeros_like(weight),
                  name);
    }
  }
  const at::NoGradGuard no_grad;
  expect_near(experts.forward_cached(values.flatten(0, 1)), expected.detach(), "inference");
  const double tokens = c.tokens == "padded"  ? 19
                        : c.tokens == "pairs" ? 32
                                              : kMoeRows * kMoeLength;
  EXPECT_EQ(statistics.counts[1].sum().item<double>(), tokens * static_cast<double>(c.k));
  EXPECT_EQ(statistics.counts[0].sum().item<double>(), 0);
}

TEST(Experts, EqualLoopsOverTokensAndExperts) {
  expect_equal_to_loops({});
  for (const std::string score : {"softmax", "sigmoid"})
    for (const bool normalize : {true, false})
      for (const std::int64_t k : {1, 3})
        for (const std::string aux_loss : {"sequence", "micro_batch"})
          expect_equal_to_loops({.k = k,
                                 .shared = k - 1,
                                 .score = score,
                                 .normalize = normalize,
                                 .aux_loss = aux_loss,
                                 .tokens = k == 1 ? "pairs" : "padded",
                                 .again = normalize});
  expect_equal_to_loops({.balance = "none", .tokens = "whole"});
  expect_equal_to_loops({.balance = "bias"});
  expect_equal_to_loops({.shared = 1, .score = "sigmoid", .balance = "bias", .tokens = "pairs"});
}

TEST(Experts, SigmoidScoresThatAreAllZeroGiveFiniteGatesAndGradients) {
  const at::Tensor scores =
      ops::router_scores(at::full({2, 4}, -200.0, at::kFloat), ops::RouterScore::sigmoid);
  ASSERT_EQ(scores.sum().item<float>(), 0);
  const ops::Routing routing = ops::pick_experts(scores, {}, 2, /*normalize=*/true);
  const at::Tensor grad = ops::router_backward(at::ones({2, 2}), {}, scores, routing.experts,
                                               ops::RouterScore::sigmoid, /*normalize=*/true);

  EXPECT_TRUE(routing.gates.isfinite().all().item<bool>());
  EXPECT_TRUE(grad.isfinite().all().item<bool>());
}

TEST(Experts, MayBeIdleOrHaveAllTokens) {
  expect_equal_to_loops({.experts = 64, .k = 1, .tokens = "pairs"});  // most have none
  expect_equal_to_loops({.experts = 1, .k = 1});
  expect_equal_to_loops({.experts = 3, .k = 3, .aux_loss = "micro_batch", .tokens = "whole"});
}

}  // namespace
}  // namespace trireme::model
