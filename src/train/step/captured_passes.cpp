#include "train/step/captured_passes.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <exception>
#include <limits>
#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/named_range.hpp"
#include "core/number.hpp"
#include "core/operation_record.hpp"
#include "device/captured_work.hpp"
#include "device/device.hpp"
#include "device/torch_errors.hpp"
#include "objective/head.hpp"
#include "ops/attention.hpp"
#include "ops/attention/memo.hpp"
#include "ops/operations.hpp"

namespace trireme::train {
namespace {

constexpr std::size_t kMostGraphs = 4;

/// Factor of the gradient scale in a check. A power of two keeps all bits of the gradients.
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
  return std::make_shared<ops::FixedCalls>(key.rows, key.length, std::max(key.documents, key.rows),
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

/// Compares the loss and the gradients of a launched graph with those of the passes without a
/// graph. Returns the difference as text; "" if rounding explains it. `is_conclusive` is false if
/// the micro-batch has no finite gradients, or only zeros.
struct Comparison {
  std::string difference;
  bool is_conclusive = true;
};

Comparison compare(const at::Tensor& expected_grads, const at::Tensor& difference_of_grads,
                   const at::Tensor& expected_loss, const at::Tensor& loss, double bound) {
  const at::Tensor numbers =
      at::stack({expected_grads.norm(2, at::kDouble), difference_of_grads.norm(2, at::kDouble),
                 expected_loss.abs(), (loss - expected_loss).abs()})
          .cpu();
  const double* value = numbers.const_data_ptr<double>();
  Comparison result;
  if (!std::isfinite(value[0]) || !std::isfinite(value[2])) return {"", false};
  result.is_conclusive = value[0] > 0;
  const auto check = [&](const char* what, double norm, double apart) {
    if (apart <= bound * norm) return;  // a NaN only in the graph is an error
    result.difference = formatted(
        "the {} of a launched micro-batch differ from the expected ones by {} of their norm; "
        "rounding explains at most {}",
        what, number_text(apart / norm), number_text(bound));
  };
  check("losses", value[2], value[3]);
  check("gradients", value[0], value[1]);
  return result;
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
                               const parallel::Mesh& mesh)
    : model_(model),
      objective_(objective),
      sums_over_ranks_(mesh.size(parallel::Axis::data) > 1 && !mesh.has_local_steps()),
      pool_(device::CapturedWork::new_pool()) {}

CapturedPasses::~CapturedPasses() = default;

bool CapturedPasses::may_launch(const MicroBatchPasses& passes) const {
  return failure_.empty() && !(sums_over_ranks_ && passes.completes_grads) &&
         !model_.registry().weights().is_gathering() && operation_record == nullptr &&
         range_observer == nullptr && has_fixed_inputs(passes.batch);
}

PassesKey CapturedPasses::key_of(const parallel::Microbatch& batch) const {
  const std::int64_t documents = ops::num_documents(batch.bounds, batch.rows());
  const auto padded =
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(documents)));
  return {batch.rows(), batch.length(), documents == batch.rows() ? 0 : padded,
          model_.training_window(), batch.target_weights.defined()};
}

void CapturedPasses::pad(const parallel::Microbatch& batch) const {
  if (!has_fixed_inputs(batch)) return;
  const auto calls = fixed_calls(key_of(batch), model_.registry().device());
  calls->set(batch.bounds);
  batch.attention->fix(calls);
}

CapturedPasses::Captured* CapturedPasses::find(const PassesKey& key) {
  const auto found = std::ranges::find_if(
      captured_, [&](const std::unique_ptr<Captured>& one) { return one->key == key; });
  if (found != captured_.end()) {
    captured_.splice(captured_.begin(), captured_, found);
    return captured_.front().get();
  }
  if (captured_.size() == kMostGraphs) captured_.pop_back();
  captured_.push_front(std::make_unique<Captured>(key, model_.registry().device()));
  return nullptr;
}

void CapturedPasses::run(const MicroBatchPasses& passes) {
  const at::NoGradGuard no_grad;
  if (!may_launch(passes)) return run_without_graph(passes);
  Captured* const captured = find(key_of(passes.batch));
  if (captured == nullptr) {
    run_without_graph(passes);
    captured_.front()->set(passes.batch, passes.grad_scale);
  } else if (!captured->is_checked) {
    check(*captured, passes);
  } else {
    launch(*captured, passes);
  }
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

void CapturedPasses::capture(Captured& captured) {
  const at::Device device = model_.registry().device();
  compute(captured);  // loads the kernels that only these passes have
  // The activations of the passes without a graph are free now. The graph needs as much memory.
  device::release_cached_memory(device);
  const auto free_bytes = [&] { return device::device_memory(device).available; };
  const double before_bytes = free_bytes();
  captured.work.emplace(device, pool_, [this, &captured] { compute(captured); });
  const double left_bytes = free_bytes();
  pool_bytes_ += std::max(0.0, before_bytes - left_bytes);
  if (!device.is_cpu() && left_bytes < pool_bytes_) {
    fail(ErrorKind::resource,
         "graphs keep {} of device memory, and the {} that are left are too little for a "
         "micro-batch without a graph. A smaller train.micro_batch leaves more memory",
         format_bytes(pool_bytes_), format_bytes(left_bytes));
  }
}

void CapturedPasses::check(Captured& captured, const MicroBatchPasses& passes) {
  const at::Tensor grads = all_grads(model_.registry());
  at::Tensor expected;   // gradients after the passes without a graph
  at::Tensor increment;  // gradients that these passes have added
  at::Tensor loss_before;
  bool is_saved = false;
  std::string failure;
  const auto with_errors = [&](auto&& action) {
    try {
      if (failure.empty()) device::with_torch_errors(action);
    } catch (const std::exception& error) {
      failure = error.what();
    }
  };
  with_errors([&] {
    increment = grads.clone();
    expected = at::empty_like(grads);
    loss_before = passes.loss_sum.clone();
  });
  run_without_graph(passes);
  bool is_conclusive = true;
  with_errors([&] {
    expected.copy_(grads);
    is_saved = true;
    increment.neg_().add_(expected);
    if (!captured.work) {
      capture(captured);
      grads.copy_(expected);
    }
    captured.set(passes.batch, kCheckFactor * passes.grad_scale);
    captured.work->launch();
    grads.sub_(expected).mul_(1 / kCheckFactor).sub_(increment);
    // Equal kernels compute both results. Only atomic additions may have another order.
    const bool is_short = at::elementSize(model_.registry().dtypes().compute) == 2;
    const Comparison result = compare(increment, grads, passes.loss_sum - loss_before,
                                      captured.loss, is_short ? 5e-3 : 1e-4);
    failure = result.difference;
    is_conclusive = result.is_conclusive;
  });
  if (is_saved) grads.copy_(expected);
  if (!failure.empty()) return turn_off(failure);
  captured.is_checked = is_conclusive;
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

void CapturedPasses::turn_off(const std::string& why) {
  failure_ = why;
  captured_.clear();
  log::warn(formatted("CUDA graphs of micro-batches are off, and training continues: {}", why));
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
  if (reason.empty()) return std::make_unique<CapturedPasses>(model, objective, mesh);
  const bool reports = mesh.world().rank() == 0;
  const std::string text = cat("micro-batches run without CUDA graphs: ", reason);
  if (reports && use.mode == "true") log::warn(text);
  if (reports && use.mode == "auto" && device.is_cuda()) log::info(text);
  return nullptr;
}

}  // namespace trireme::train
