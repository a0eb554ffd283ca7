#include "train/step/captured_passes.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/named_range.hpp"
#include "core/operation_record.hpp"
#include "device/captured_work.hpp"
#include "device/device.hpp"
#include "device/torch_errors.hpp"
#include "objective/head.hpp"
#include "ops/attention.hpp"
#include "ops/attention/memo.hpp"
#include "ops/operations.hpp"
#include "train/step/graph_checks.hpp"

namespace trireme::train {
namespace {

/// Factor of the gradient scale in a check. A power of two keeps all bits of the gradients, except
/// of fp16 numbers that become subnormal. Their share of the norm is far below the bounds.
constexpr double kCheckFactor = 0.5;

/// Returns true if nothing but the tensors that a graph copies changes between micro-batches.
bool has_fixed_inputs(const parallel::Microbatch& batch) {
  return batch.training && batch.adapters && batch.target_tokens && batch.targets.defined() &&
         batch.positions_of_ranks.empty() && !batch.sequence_of.defined() &&
         !batch.policy.defined() && !batch.previous.defined() && !batch.mismatched;
}

/// Returns the gradients of all trainable parameters, which are one buffer.
at::Tensor all_grads(parallel::ParamRegistry& registry) {
  return registry.grads().range(0, registry.layout().trainable_count());
}

std::shared_ptr<ops::FixedCalls> fixed_calls(const PassesKey& key, at::Device device) {
  return std::make_shared<ops::FixedCalls>(
      ops::FixedShape{.batch = key.rows,
                      .length = key.length,
                      .documents = std::max(key.documents, key.rows),
                      .longest = key.longest},
      device);
}

/// Counts no uses of parameters while it exists.
class Uncounted {
 public:
  explicit Uncounted(parallel::ParamRegistry& registry) : registry_(registry) {
    registry.count_uses(false);
  }

  ~Uncounted() { registry_.count_uses(true); }

  Uncounted(const Uncounted&) = delete;
  Uncounted& operator=(const Uncounted&) = delete;

 private:
  parallel::ParamRegistry& registry_;
};

std::string launched_text(const PassesKey& key) {
  return formatted(
      "micro-batches of {} x {} tokens with up to {} documents are launched as a CUDA graph",
      key.rows, key.length, std::max(key.documents, key.rows));
}

/// Logs why micro-batches have no graphs, on the first rank.
void report_reason(const GraphUse& use, at::Device device, const std::string& reason) {
  const std::string text = cat("micro-batches run without CUDA graphs: ", reason);
  if (use.mode == "true") log::warn(text);
  if (use.mode == "auto" && device.is_cuda()) log::info(text);
}

}  // namespace

std::string reason_against_captured_passes(const model::Transformer& model,
                                           const objective::Objective& objective,
                                           const parallel::Mesh& mesh) {
  const model::ModelConfig& config = model.config();
  const parallel::ParallelConfig& parallel = mesh.config();
  using parallel::Axis;
  if (mesh.size(Axis::tp) > 1 || mesh.size(Axis::cp) > 1 || mesh.size(Axis::pp) > 1)
    return "the passes of a micro-batch communicate (parallel.tp, cp or pp)";
  if (parallel.reproducible || (parallel.zero >= 2 && mesh.size(Axis::shard) > 1))
    return "gradients do not keep their addresses (parallel.zero 2 or 3, or reproducible)";
  if (config.moe.on()) return "the number of tokens of each expert differs between micro-batches";
  if (model.has_dropout()) return "the masks of dropout depend on the step";
  if (model.fp8().mode() != model::Fp8Mode::off)
    return "the scales of train.fp8 are not inputs of a graph";
  if (!objective.keeps_values_on_device() || !objective.has_fixed_shapes() || objective.surveys())
    return "the loss of this task has other operations for each micro-batch";
  if (config.attention_softcap > 0 || model.path() == ops::Path::plain ||
      ops::path_of(ops::Operation::attention, model.path()) == ops::Path::plain)
    return "attention reads document boundaries from a mask that the host computes";
  return "";
}

/// The inputs and the result of captured passes, with fixed addresses.
struct CapturedPasses::Captured {
  Captured(const PassesKey& given, at::Device device)
      : key(given), calls(fixed_calls(key, device)) {
    const auto options = at::TensorOptions().device(device);
    const auto tokens = [&] { return at::zeros({key.rows, key.length}, options.dtype(at::kLong)); };
    inputs.tokens = tokens();
    inputs.targets = tokens();
    inputs.positions = tokens();
    if (key.has_weights)
      inputs.target_weights = at::zeros({key.rows, key.length}, options.dtype(at::kFloat));
    inputs.grad_scale = at::zeros({}, options.dtype(at::kDouble));
    // A graph cannot check targets. launch() does it.
    inputs.target_tokens = std::make_shared<const parallel::TargetTokens>();
    inputs.training = true;
    loss = at::zeros_like(inputs.grad_scale);
  }

  /// Copies the inputs, in the order of the current stream and without waiting.
  void set(const parallel::Microbatch& batch, double grad_scale) {
    inputs.tokens.copy_(batch.tokens);
    inputs.targets.copy_(batch.targets);
    inputs.positions.copy_(batch.positions);
    if (key.has_weights) inputs.target_weights.copy_(batch.target_weights);
    inputs.grad_scale.fill_(grad_scale);
    calls->set(batch.bounds);
    // Only the capture and a launch on a CPU read these values.
    inputs.bounds = batch.bounds;
    inputs.attention = ops::make_attention_memo();
    inputs.attention->fix(calls);
  }

  PassesKey key;
  std::shared_ptr<ops::FixedCalls> calls;
  parallel::Microbatch inputs;
  at::Tensor loss;  // scalar fp64
  std::optional<device::CapturedWork> work;
  bool is_checked = false;
};

CapturedPasses::CapturedPasses(model::Transformer& model, objective::Objective& objective,
                               const parallel::Mesh& mesh, GraphUse use)
    : model_(model),
      objective_(objective),
      use_(std::move(use)),
      is_first_rank_(mesh.world().rank() == 0),
      sums_over_ranks_(mesh.size(parallel::Axis::data) > 1 && !mesh.has_local_steps()),
      gathers_weights_(model.registry().layout().has_parts()),
      pool_(std::make_shared<device::CapturePool>(model.registry().device())) {}

CapturedPasses::~CapturedPasses() = default;

void CapturedPasses::begin_update(std::int64_t num_micro_batches) {
  const int without_graph = (sums_over_ranks_ ? 1 : 0) + (gathers_weights_ ? 1 : 0);
  is_possible_ = num_micro_batches > without_graph;
  if (is_possible_ || num_micro_batches == 0 || std::exchange(said_impossible_, true)) return;
  if (!is_first_rank_) return;
  report_reason(
      use_, model_.registry().device(),
      formatted("the data ranks communicate in {} of each update. An update with more "
                "micro-batches on each rank (a smaller train.micro_batch) has graphs",
                gathers_weights_ ? "the first and the last micro-batch" : "the last micro-batch"));
}

bool CapturedPasses::may_launch(const MicroBatchPasses& passes) const {
  return is_possible_ && failure_.empty() && !(sums_over_ranks_ && passes.completes_grads) &&
         !model_.registry().weights().is_gathering() && operation_record == nullptr &&
         range_observer == nullptr && has_fixed_inputs(passes.batch);
}

void CapturedPasses::pad(const parallel::Microbatch& batch) const {
  if (!is_possible_ || !has_fixed_inputs(batch)) return;
  const auto calls =
      fixed_calls(passes_key(batch, model_.training_window()), model_.registry().device());
  calls->set(batch.bounds);
  batch.attention->fix(calls);
}

CapturedPasses::Captured* CapturedPasses::find(const PassesKey& key) {
  const auto found = std::ranges::find_if(
      captured_, [&](const std::unique_ptr<Captured>& one) { return one->key == key; });
  if (found == captured_.end()) return nullptr;
  captured_.splice(captured_.begin(), captured_, found);
  return captured_.front().get();
}

bool CapturedPasses::is_due(const PassesKey& key) {
  KeyUse& use = uses_[key];
  return ++use.uses >= kUsesBeforeGraph && use.inconclusive < kMostInconclusive &&
         num_captures_ < kMostCaptures;
}

void CapturedPasses::add(const PassesKey& key, const MicroBatchPasses& passes) {
  const at::Device device = model_.registry().device();
  if (captured_.size() == kMostGraphs) {
    device::finish_work(device);  // the graph may still run
    uses_[captured_.back()->key].uses = 0;
    captured_.pop_back();
  }
  captured_.push_front(std::make_unique<Captured>(key, device));
  captured_.front()->set(passes.batch, passes.grad_scale);
  if (++num_captures_ == kMostCaptures)
    log::debug("CUDA graphs of micro-batches: this run makes no more graphs");
}

void CapturedPasses::run(const MicroBatchPasses& passes) {
  const at::NoGradGuard no_grad;
  if (!may_launch(passes)) return run_without_graph(passes);
  const PassesKey key = passes_key(passes.batch, model_.training_window());
  if (Captured* const captured = find(key)) {
    if (captured->is_checked) return launch(*captured, passes);
    if (passes.starts_grads || gathers_weights_) return check(*captured, passes);
    return run_without_graph(passes);
  }
  run_without_graph(passes);
  if (!is_due(key)) return;
  attempt([&] { add(key, passes); });
  if (!failure_.empty()) turn_off();
}

void CapturedPasses::run_without_graph(const MicroBatchPasses& passes) const {
  pad(passes.batch);
  passes.run();
}

void CapturedPasses::compute(Captured& captured) {
  const Uncounted uncounted(model_.registry());
  model::StageActivations saved;
  objective::ObjectiveGrads grads;
  at::Tensor hidden = model_.forward(0, captured.inputs, {}, saved);
  // An objective that reads this number, and not inputs.grad_scale, does not pass the check.
  const double unused_scale = std::numeric_limits<double>::quiet_NaN();
  captured.loss.copy_(objective_.forward(captured.inputs, hidden, unused_scale, grads));
  hidden.reset();
  model_.backward_final_norm(saved, grads.grad_hidden);
  grads.grad_hidden.reset();
  objective_.backward(grads);
  (void)model_.backward(0, captured.inputs, saved, {});
}

void CapturedPasses::capture(Captured& captured, double held_bytes) {
  const at::Device device = model_.registry().device();
  compute(captured);  // loads the kernels that only these passes have
  // The activations of the passes without a graph are free now. The graph needs as much memory.
  device::release_cached_memory(device);
  const double before_bytes = device::device_memory(device).available;
  captured.work.emplace(pool_, [this, &captured] { compute(captured); });
  if (device.is_cpu()) return;
  const auto [total_bytes, left_bytes] = device::device_memory(device);
  // The pool keeps the memory of an earlier graph for the next one, so only its growth is new.
  pool_bytes_ += std::max(0.0, before_bytes - left_bytes);
  check_graph_memory({.graphs = pool_bytes_, .left = left_bytes + held_bytes, .total = total_bytes},
                     use_.mode);
}

void CapturedPasses::check(Captured& captured, const MicroBatchPasses& passes) {
  const at::Tensor loss_before = passes.loss_sum.clone();
  run_without_graph(passes);
  const at::Tensor grads = all_grads(model_.registry());
  at::Tensor saved;
  std::optional<std::string> result;
  attempt([&] {
    saved = grads.clone();
    if (!captured.work) capture(captured, static_cast<double>(saved.nbytes()));
    result = difference(captured, passes, saved, passes.loss_sum - loss_before);
    if (result) failure_ = *result;
  });
  if (saved.defined()) grads.copy_(saved);
  saved.reset();
  if (!failure_.empty()) return turn_off();
  captured.is_checked = result.has_value();
  if (captured.is_checked) log_on_first_rank(/*is_warning=*/false, launched_text(captured.key));
  if (captured.is_checked || ++uses_[captured.key].inconclusive < kMostInconclusive) return;
  log_on_first_rank(/*is_warning=*/false,
                    formatted("micro-batches of one size run without a CUDA graph: {} of them had "
                              "no finite gradients, or only zeros, so the graph was not checked",
                              kMostInconclusive));
  device::finish_work(model_.registry().device());
  captured_.pop_front();  // find() has put it there
}

std::optional<std::string> CapturedPasses::difference(Captured& captured,
                                                      const MicroBatchPasses& passes,
                                                      const at::Tensor& grads_without_graph,
                                                      const at::Tensor& loss_without_graph) {
  const at::Tensor grads = all_grads(model_.registry());
  at::Tensor expected = grads_without_graph;
  if (!passes.starts_grads) {
    captured.set(passes.batch, passes.grad_scale);
    grads.zero_();
    compute(captured);
    expected = grads.clone();
  }
  captured.set(passes.batch, kCheckFactor * passes.grad_scale);
  grads.zero_();
  captured.work->launch();
  grads.mul_(1 / kCheckFactor).sub_(expected);
  // Equal kernels compute both results. Only atomic additions may have another order.
  const bool is_short = at::elementSize(model_.registry().dtypes().compute) == 2;
  return graph_difference(expected, grads, loss_without_graph, captured.loss,
                          is_short ? 5e-3 : 1e-4);
}

void CapturedPasses::launch(Captured& captured, const MicroBatchPasses& passes) {
  parallel::ParamRegistry& registry = model_.registry();
  objective::check_targets(passes.batch, registry.spec(model_.head_weight()).shape[0]);
  passes.before_launch();
  captured.set(passes.batch, passes.grad_scale);
  captured.work->launch();
  passes.loss_sum.add_(captured.loss);
  registry.count_backward();
  ++num_launches_;
}

void CapturedPasses::attempt(const std::function<void()>& action) {
  try {
    device::with_torch_errors(action);
  } catch (const Error& error) {
    failure_ = error.what();
    is_choice_ = use_.mode == "auto" && error.kind() == ErrorKind::resource;
  } catch (const std::exception& error) {
    failure_ = error.what();
  }
}

void CapturedPasses::turn_off() {
  const at::Device device = model_.registry().device();
  device::finish_work(device);  // a graph may still run
  captured_.clear();
  pool_.reset();
  device::release_cached_memory(device);
  log_on_first_rank(
      !is_choice_,
      formatted("CUDA graphs of micro-batches are off, and training continues: {}", failure_));
}

void CapturedPasses::log_on_first_rank(bool is_warning, const std::string& text) const {
  if (is_warning && is_first_rank_) {
    log::warn(text);
  } else {
    log::info(text);
  }
}

std::unique_ptr<CapturedPasses> make_captured_passes(const GraphUse& use, model::Transformer& model,
                                                     objective::Objective& objective,
                                                     const parallel::Mesh& mesh) {
  if (use.mode == "false") return nullptr;
  const parallel::ParamRegistry& registry = model.registry();
  const at::Device device = registry.device();
  std::string reason = reason_against_captured_passes(model, objective, mesh);
  if (!use.on_cpu && reason.empty()) {
    if (!device.is_cuda()) {
      reason = "the model is not on a GPU";
    } else if (!ops::has_varlen_kernel(
                   at::empty({1, 1, 1, model.config().head_dim},
                             at::TensorOptions().dtype(registry.dtypes().compute).device(device)),
                   model.path())) {
      reason = "attention over packed rows has no kernel for this precision, head size or GPU";
    }
  }
  if (reason.empty()) return std::make_unique<CapturedPasses>(model, objective, mesh, use);
  if (mesh.world().rank() == 0) report_reason(use, device, reason);
  return nullptr;
}

}  // namespace trireme::train
