#include "train/verify/verify_layout.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "comm/self/self_communicator.hpp"
#include "model/layer_list.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "train/config/layout.hpp"
#include "train/verify/layout_trial.hpp"
#include "train/verify/trial_model.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t kMicroBatch = 2;
constexpr std::int64_t kDefaultAccumulation = 2;
constexpr std::int64_t kLeastLength = 12;
constexpr std::int64_t kMostExperts = 16;
constexpr std::int64_t kMostChunks = 64;  // upper limit for the small model's length
constexpr double kLearningRate = 1e-2;
/// Gradients below this share of the norm of all gradients are compared with this share: of a
/// gradient that is 0 in exact arithmetic, there is only rounding to compare.
constexpr double kLeastGradient = 1e-4;
/// The rounding errors of fp64 are a larger share than LayoutComparison::bound of gradients below
/// this share of the norm of all gradients.
constexpr double kRounding = 1e-6;
/// Norms of layers are not compared if rounding errors moved a weight by more than this share of
/// the largest weight.
constexpr double kMovedWeight = 1e-5;

/// Returns the largest difference, relative to the largest expected element or to `least`.
double distance(const at::Tensor& value, const at::Tensor& expected, double least = 0) {
  const double difference = (value - expected).abs().max().item<double>();
  if (difference == 0) return 0;
  if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
  return difference / std::max(expected.abs().max().item<double>(), least);
}

double distance(double value, double expected) {
  return value == expected ? 0 : std::abs(value - expected) / std::abs(expected);
}

/// Keeps the larger distance; NaN counts as infinity.
void keep_worst(double& worst, double distance) {
  if (!(distance <= worst))
    worst = std::isnan(distance) ? std::numeric_limits<double>::infinity() : distance;
}

/// Returns the sequences [first, first + count) of an update of `all` sequences, in micro-batches.
std::vector<data::Batch> micro_batches(std::int64_t first, std::int64_t count, std::int64_t all,
                                       std::int64_t length, std::int64_t vocab) {
  std::vector<data::Batch> batches;
  for (std::int64_t begin = first; begin < first + count; begin += kMicroBatch) {
    std::vector<std::int64_t> indices(kMicroBatch);
    std::iota(indices.begin(), indices.end(), begin);
    batches.push_back(make_rows(indices, length, vocab));
    batches.back().update_samples = all;
    batches.back().update_batches = all / kMicroBatch;
  }
  return batches;
}

std::int64_t accumulation_of(const RunConfig& config) {
  return config.train.accumulation > 0 ? config.train.accumulation : kDefaultAccumulation;
}

/// Returns which elements have tiny gradients in all steps, and not exactly 0 in all of them. For
/// example, the gradient of the bias of keys without RoPE is 0 in exact arithmetic, because the bias
/// adds the same number to all scores of a query. An optimizer may enlarge the rounding errors (Lion
/// to its whole step), so the weights and the optimizer state of these elements are not compared.
at::Tensor has_tiny_gradients(const TrialTrace& trace, const TrialTrace& expected) {
  at::Tensor is_small = at::ones_like(expected.weights, at::kBool);
  at::Tensor is_zero = at::ones_like(expected.weights, at::kBool);
  for (std::size_t step = 0; step < expected.grads.size(); ++step) {
    for (const at::Tensor& grads : {trace.grads[step], expected.grads[step]}) {
      is_small = is_small & (grads.abs() <= kRounding * expected.norms[step]);
      is_zero = is_zero & (grads == 0);
    }
  }
  return is_small & ~is_zero;
}

}  // namespace

LayoutComparison compare_trials(const TrialTrace& trace, const TrialTrace& expected) {
  LayoutComparison comparison;
  const at::Tensor excluded = has_tiny_gradients(trace, expected);
  comparison.num_excluded = excluded.sum().item<std::int64_t>();
  const auto comparable = [&](const at::Tensor& values, const at::Tensor& instead) {
    return at::where(excluded, instead, values);
  };
  const at::Tensor weights = comparable(trace.weights, expected.weights);
  const bool compares_layer_norms = distance(at::where(excluded, trace.weights, expected.weights),
                                             expected.weights) <= kMovedWeight;
  for (std::size_t step = 0; step < expected.losses.size(); ++step) {
    keep_worst(comparison.loss_rel, distance(trace.losses[step], expected.losses[step]));
    keep_worst(comparison.norm_rel, distance(trace.norms[step], expected.norms[step]));
    const std::vector<double>& norms = expected.layer_norms[step];
    for (std::size_t i = 0; compares_layer_norms && i < norms.size(); ++i)
      keep_worst(comparison.norm_rel, distance(trace.layer_norms[step].at(i), norms[i]));
    for (const parallel::GatheredParam& param : expected.params) {
      const double before = comparison.grad_rel;
      keep_worst(comparison.grad_rel,
                 distance(param.of(trace.grads[step]), param.of(expected.grads[step]),
                          kLeastGradient * expected.norms[step]));
      if (comparison.grad_rel != before) comparison.grad_worst = param.name;
    }
  }
  for (const parallel::GatheredParam& param : expected.params) {
    keep_worst(comparison.weight_rel, distance(param.of(weights), param.of(expected.weights)));
    for (std::size_t slot = 0; slot < expected.moments.size(); ++slot) {
      const at::Tensor& state = expected.moments[slot];
      keep_worst(comparison.moment_rel,
                 distance(param.of(comparable(trace.moments[slot], state)), param.of(state)));
    }
  }
  return comparison;
}

namespace {

/// Makes the options of the model fit its small sizes. The scalings that depend on the number of
/// frequencies or on the longest text do not change how a layout computes. Zero projections would
/// make the gradients of residual scalars so small that rounding errors are a large share of them:
/// the final norm removes the scale of a residual stream to which no layer adds anything.
void fit_options(model::ModelConfig& small) {
  const auto fitting = [&](const std::string& text) {
    std::vector<std::int64_t> layers = model::parse_layers(text);
    std::erase_if(layers, [&](std::int64_t layer) { return layer >= small.num_layers; });
    return model::layers_text(layers);
  };
  small.full_attention_layers = fitting(small.full_attention_layers);
  small.no_rope_layers = fitting(small.no_rope_layers);
  if (small.value_embeddings != model::kAlternate)
    small.value_embeddings = fitting(small.value_embeddings);
  small.sliding_window = std::min(small.sliding_window, small.max_seq_len / 4);
  if (!small.window_pattern.empty()) small.short_window = small.max_seq_len / 4;
  if (small.rotary_dim > 0) small.rotary_dim = 2;
  small.zero_projections = false;
  if (small.rope_scaling.starts_with("longrope") || small.rope_scaling.starts_with("dynamic"))
    small.rope_scaling.clear();
}

}  // namespace

model::ModelConfig small_model_like(const model::ModelConfig& model,
                                    const parallel::ParallelConfig& parallel) {
  model::ModelConfig small = model;
  const std::int64_t stages = parallel::stage_placement(parallel).stages();
  const bool uneven = stages > 1;  // one more layer, so that layers do not divide evenly
  if (parallel.pp == 1 || parallel.stages == "auto")
    small.num_layers =
        std::max<std::int64_t>(model::has_residual_terms(model) ? 4 : 2, stages + (uneven ? 1 : 0));
  small.hidden_size = 16;
  small.head_dim = 4;
  small.intermediate_size = std::max<std::int64_t>(27, parallel.tp);
  if (model::MoeConfig& moe = small.moe; moe.on()) {
    moe.moe_intermediate_size = std::max<std::int64_t>(13, parallel.tp);
    const std::int64_t least =
        std::max(moe.num_experts_per_tok, std::min(moe.num_experts, kMostExperts));
    const bool deals_evenly = moe.num_experts % parallel.ep == 0;  // otherwise check_layout fails
    moe.num_experts = deals_evenly ? (least + parallel.ep - 1) / parallel.ep * parallel.ep : least;
    moe.first_dense_layers = std::min(moe.first_dense_layers, small.num_layers - 1);
  }
  const std::int64_t cut = 2 * parallel.tp * parallel.cp;  // divisor of the sequence length
  const std::int64_t chunks = parallel.tp > 1 ? std::min(parallel.tp_chunks, kMostChunks) : 1;
  const std::int64_t least = std::max(kLeastLength, chunks * parallel.tp * parallel.cp);
  small.max_seq_len = (least + cut - 1) / cut * cut;
  fit_options(small);
  small.vocab_size = 0;
  model::resolve(small, std::max<std::int64_t>(61, parallel.tp));
  return small;
}

void check_verifiable(const RunConfig& config, int ranks) {
  const model::ModelConfig model = small_model_like(config.model, config.parallel);
  Problems problems;
  check_layout(config.parallel, {model, {model.max_seq_len}, ranks}, problems);
  model::check_targets(config.lora, model, problems);
  if (config.parallel.local_steps > 1) {
    problems.add(
        "parallel.local_steps", config.parallel.local_steps,
        "must be 1 here: training with local steps differs from the training of one process by design");
  }
  problems.throw_if_any();
  check_micro_batches(config.parallel, accumulation_of(config));
}

LayoutComparison verify_layout(comm::Communicator& world, const RunConfig& config,
                               std::int64_t steps, at::Device device,
                               const std::vector<int>& node_of_rank) {
  TrialPlan plan;
  plan.model = small_model_like(config.model, config.parallel);
  plan.parallel = config.parallel;
  plan.node_of_rank = node_of_rank;
  plan.optim = config.optim;
  plan.lora = config.lora;
  plan.device = device;
  plan.steps = steps;
  plan.lr = kLearningRate;
  const std::int64_t length = plan.model.max_seq_len;
  check_verifiable(config, world.size());
  const int data = parallel::data_ranks(config.parallel, world.size());
  const std::int64_t share = kMicroBatch * accumulation_of(config);  // sequences per data rank
  const std::int64_t vocab = plan.model.vocab_size;
  plan.targets = [=](std::int64_t step) {
    std::int64_t targets = 0;
    for (const data::Batch& batch :
         micro_batches(step * data * share, data * share, data * share, length, vocab))
      targets += batch.num_targets;
    return targets;
  };
  plan.batches = [=](int rank, std::int64_t step) {
    return micro_batches((step * data + rank) * share, share, data * share, length, vocab);
  };
  plan.audit = true;
  const TrialTrace trace = run_trial(world, plan);
  if (world.rank() != 0) return {};

  plan.audit = false;
  plan.parallel = {};
  plan.device = at::kCPU;
  plan.batches = [=](int, std::int64_t step) {
    return micro_batches(step * data * share, data * share, data * share, length, vocab);
  };
  comm::SelfCommunicator alone;
  LayoutComparison comparison = compare_trials(trace, run_trial(alone, plan));
  comparison.audit = trace.audit;
  return comparison;
}

}  // namespace trireme::train
