#include "objective/bradley_terry.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.hpp"
#include "objective/head.hpp"
#include "parallel/collectives.hpp"

namespace trireme::objective {
namespace {

/// The values that validation reports come first.
constexpr std::array<std::string_view, 4> kRewardMeans{"accuracy", "margin", "reward_chosen",
                                                       "reward_rejected"};
constexpr std::size_t kNumEvaluated = 2;

/// Converts between positions of a whole row and tokens of one rank.
class RowTokens {
 public:
  /// Pairs have one row. `rank`: rank of cp.
  RowTokens(const parallel::Microbatch& batch, int rank) {
    if (batch.positions_of_ranks.empty()) {
      ranges_.push_back({0, batch.length()});
    } else {
      ranges_ = batch.positions_of_ranks[static_cast<std::size_t>(rank)].front();
    }
  }

  [[nodiscard]] std::int64_t position_of(std::int64_t token) const {
    for (const ops::TokenRange& range : ranges_) {
      if (token < range.length) return range.first + token;
      token -= range.length;
    }
    fail(ErrorKind::internal, "token {} beyond the end of a row", token);
  }

  /// Returns the token, or -1 if another rank holds the position.
  [[nodiscard]] std::int64_t token_at(std::int64_t position) const {
    std::int64_t before = 0;
    for (const ops::TokenRange& range : ranges_) {
      if (position >= range.first && position < range.first + range.length)
        return before + position - range.first;
      before += range.length;
    }
    return -1;
  }

 private:
  std::vector<ops::TokenRange> ranges_;
};

/// Returns the position of the last target token of each sequence in the whole row, fp64
/// [2 * num_pairs]. Collective over cp.
at::Tensor end_positions(const parallel::Microbatch& batch, const RowTokens& tokens,
                         const parallel::ContextGroup& context) {
  at::Tensor ends = at::full({2 * batch.num_pairs}, -1, at::kDouble);
  if (batch.num_pairs > 0) {
    if (!batch.sequence_of.defined() || batch.rows() != 1)
      fail(ErrorKind::internal, "a reward model received a batch without preference pairs");
    const at::Tensor index = target_index(batch);
    const at::Tensor on_host = index.to(at::kCPU);
    const at::Tensor sequences = batch.sequence_of.flatten().index_select(0, index).to(at::kCPU);
    auto last = ends.accessor<double, 1>();
    for (std::int64_t i = 0; i < on_host.numel(); ++i) {
      const std::int64_t sequence = sequences.const_data_ptr<std::int64_t>()[i];
      // the target of a token is the token after it
      const std::int64_t position =
          tokens.position_of(on_host.const_data_ptr<std::int64_t>()[i]) + 1;
      last[sequence] = std::max(last[sequence], static_cast<double>(position));
    }
  }
  if (context.size() == 1) return ends;
  const at::Tensor shared = ends.to(batch.tokens.device());
  parallel::all_reduce(*context.group, shared, comm::ReduceOp::max, "ends of answers")->wait();
  return shared.to(at::kCPU);
}

struct PairTerms {
  at::Tensor losses;  // [P]
  at::Tensor slopes;  // [2 P]: d loss / d reward
};

PairTerms pair_terms(const at::Tensor& rewards, double center) {
  const at::Tensor both = rewards.view({-1, 2});
  const at::Tensor margin = both.select(1, 0) - both.select(1, 1);
  const at::Tensor sum = both.select(1, 0) + both.select(1, 1);
  const at::Tensor of_margin = at::sigmoid(-margin);
  const at::Tensor of_sum = sum * (2 * center);
  return {sum.square() * center - at::log_sigmoid(margin),
          at::stack({of_sum - of_margin, of_sum + of_margin}, 1).flatten()};
}

/// Returns the sums over the pairs of a batch, in the order of kRewardMeans.
std::array<double, kRewardMeans.size()> reward_sums(const at::Tensor& rewards) {
  const at::Tensor chosen = rewards.view({-1, 2}).select(1, 0);
  const at::Tensor rejected = rewards.view({-1, 2}).select(1, 1);
  const auto sum = [](const at::Tensor& values) { return values.sum().item<double>(); };
  return {sum(chosen.gt(rejected).to(at::kDouble)), sum(chosen - rejected), sum(chosen),
          sum(rejected)};
}

}  // namespace

parallel::ParamId declare_reward_head(parallel::ParamRegistry& registry, std::int64_t hidden_size) {
  registry.begin_unit("reward head");
  const double scale = 1 / std::sqrt(static_cast<double>(hidden_size + 1));
  parallel::ParamSpec spec{
      kRewardHead, {1, hidden_size}, {parallel::InitDistribution::Kind::normal, scale}};
  spec.table = parallel::ParamSpec::Table::head;  // not a matrix for Muon
  return registry.declare(std::move(spec));
}

at::Tensor rewards_of(const at::Tensor& rows, const at::Tensor& weight) {
  const at::ScalarType type = ops::accumulate_type(rows);
  return (rows.to(type) * weight.to(type)).sum(1);
}

void check(const RewardConfig& config, Problems& problems) {
  if (!(config.center >= 0 && std::isfinite(config.center)))
    problems.add("reward.center", config.center, "must be 0 or more, and finite");
}

BradleyTerry::BradleyTerry(parallel::ParamRegistry& registry, const Setup& setup,
                           Measures& measures)
    : registry_(registry),
      setup_(setup),
      measures_(measures),
      means_(measures, kRewardMeans),
      num_pairs_(measures.declare({"num_pairs", Combine::sum, /*whole=*/true})) {
  if (setup.has_head) head_ = declare_reward_head(registry, setup.hidden_size);
}

BradleyTerry::Scores BradleyTerry::scores_of(const parallel::Microbatch& batch,
                                             const at::Tensor& hidden) const {
  const parallel::ContextGroup& context = setup_.context;
  const RowTokens row(batch, context.size() == 1 ? 0 : context.group->rank());
  const at::Tensor ends = end_positions(batch, row, context);
  Scores scores;
  for (std::int64_t sequence = 0; sequence < ends.numel(); ++sequence) {
    const auto position = static_cast<std::int64_t>(ends.const_data_ptr<double>()[sequence]);
    if (position < 0) fail(ErrorKind::internal, "an answer of a preference pair has no target");
    const std::int64_t token = row.token_at(position);
    if (token < 0) continue;
    scores.tokens.push_back(token);
    scores.sequences.push_back(sequence);
  }
  const at::Tensor index = at::tensor(scores.tokens, at::kLong).to(hidden.device());
  scores.rows = hidden.reshape({-1, hidden.size(-1)}).index_select(0, index);
  scores.rewards = at::zeros({2 * batch.num_pairs}, at::kDouble);
  scores.rewards.index_copy_(
      0, at::tensor(scores.sequences, at::kLong),
      rewards_of(scores.rows, registry_.weight(head_)).to(at::kCPU, at::kDouble));
  if (context.size() == 1) return scores;
  const at::Tensor shared = scores.rewards.to(hidden.device());
  parallel::all_reduce(*context.group, shared, comm::ReduceOp::sum, "rewards")->wait();
  scores.rewards = shared.to(at::kCPU);
  return scores;
}

at::Tensor BradleyTerry::forward(const parallel::Microbatch& batch, const at::Tensor& hidden,
                                 double grad_scale, ObjectiveGrads& saved) {
  const at::NoGradGuard no_grad;
  const Scores scores = scores_of(batch, hidden);
  const PairTerms terms = pair_terms(scores.rewards, setup_.config.center);
  const at::ScalarType type = ops::accumulate_type(hidden);
  const at::Tensor slopes =
      (terms.slopes.index_select(0, at::tensor(scores.sequences, at::kLong)) * grad_scale)
          .to(hidden.device(), type)
          .unsqueeze(1);  // [n, 1]
  saved.grad_head = (slopes * scores.rows.to(type)).sum(0, /*keepdim=*/true);
  saved.grad_hidden =
      at::zeros({hidden.numel() / hidden.size(-1), hidden.size(-1)}, hidden.options());
  // The ranks of tp add up their gradients of the hidden states, so one of them gives the gradient.
  if (setup_.tensor.rank() == 0)
    saved.grad_hidden.index_copy_(
        0, at::tensor(scores.tokens, at::kLong).to(hidden.device()),
        (slopes * registry_.weight(head_).to(type)).to(hidden.scalar_type()));
  saved.grad_hidden = saved.grad_hidden.view_as(hidden);

  const bool tells = gives_loss() && setup_.tensor.rank() == 0;
  means_.add(batch.step,
             tells ? reward_sums(scores.rewards) : std::array<double, kRewardMeans.size()>{},
             tells ? static_cast<double>(batch.num_pairs) : 0);
  measures_.record(num_pairs_, means_.weight());
  return terms.losses.sum().mul_(gives_loss() ? 1 : 0).to(hidden.device());
}

void BradleyTerry::backward(ObjectiveGrads& saved) {
  registry_.run_or_defer([this, grad = saved.grad_head] {
    registry_.add_gradient({head_}, grad);
    // No gradient of the output matrix comes from this loss, but its unit waits for one.
    static_cast<void>(registry_.master_grad(setup_.lm_head));  // zeros
    registry_.gradient_added({setup_.lm_head});
  });
  saved = {};
}

std::span<const std::string_view> BradleyTerry::evaluated() const {
  return std::span(kRewardMeans).first(kNumEvaluated);
}

at::Tensor BradleyTerry::evaluate(const parallel::Microbatch& batch,
                                  const at::Tensor& hidden) const {
  const at::NoGradGuard no_grad;
  const Scores scores = scores_of(batch, hidden);
  const PairTerms terms = pair_terms(scores.rewards, setup_.config.center);
  std::vector<double> sums{terms.losses.sum().item<double>()};
  const auto means = reward_sums(scores.rewards);
  sums.insert(sums.end(), means.begin(), means.begin() + kNumEvaluated);
  return at::tensor(sums, hidden.options().dtype(at::kDouble)).mul_(gives_loss() ? 1 : 0);
}

at::Tensor pair_rewards(const parallel::Microbatch& batch, const at::Tensor& hidden,
                        const at::Tensor& head) {
  const at::NoGradGuard no_grad;
  const RowTokens row(batch, 0);
  const at::Tensor ends = end_positions(batch, row, {}).to(at::kLong).to(hidden.device());
  const at::Tensor rows = hidden.reshape({-1, hidden.size(-1)}).index_select(0, ends);
  return rewards_of(rows, head).to(at::kCPU, at::kDouble).view({-1, 2});
}

}  // namespace trireme::objective
