#include "objective/linear_cross_entropy.hpp"

#include <ATen/ATen.h>

#include "core/error.hpp"
#include "core/operation_record.hpp"
#include "ops/cpu_rows.hpp"
#include "ops/cuda/cross_entropy.hpp"
#include "ops/operations.hpp"
#include "ops/product.hpp"

namespace trireme::objective {
namespace {

void check_inputs(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                  const LinearCrossEntropySetup& setup) {
  const auto fit = x.dim() == 2 && weight.dim() == 2 && targets.dim() == 1 &&
                   x.size(1) == weight.size(1) && x.size(0) == targets.size(0) &&
                   x.scalar_type() == weight.scalar_type() && targets.scalar_type() == at::kLong &&
                   setup.chunk_rows > 0 &&
                   (!setup.row_weights.defined() || setup.row_weights.sizes() == targets.sizes());
  if (!fit) {
    fail(
        ErrorKind::internal,
        "linear_cross_entropy: x {}, weight {}, targets {}: must be [N, D], [V, D] of one dtype and [N] int64",
        x.sizes(), weight.sizes(), targets.sizes());
  }
  if (!setup.targets_checked) check_targets(targets, weight.size(0));
}

/// Computes losses [rows] of logits [rows, V]. Returns grad_scale * d loss / d logits in x's dtype.
at::Tensor plain_chunk(const at::Tensor& logits, const at::Tensor& targets,
                       const at::Tensor& row_weights, const at::Tensor& losses,
                       const LinearCrossEntropySetup& setup) {
  const auto log_probs = at::log_softmax(logits, -1, losses.scalar_type());
  const auto valid = targets.ne(kIgnoredTarget).unsqueeze(1);  // [rows, 1]
  const auto picks = targets.clamp_min(0).unsqueeze(1);        // [rows, 1]
  losses.copy_(log_probs.gather(1, picks).neg_().masked_fill_(valid.logical_not(), 0).squeeze(1));
  if (!setup.want_grads) return {};
  auto grad = log_probs.exp();
  grad.scatter_add_(1, picks, at::full_like(picks, -1, grad.scalar_type()));
  scale_gradient(grad, setup);
  grad.mul_(valid);
  if (row_weights.defined()) grad.mul_(row_weights.unsqueeze(1));
  return grad.to(logits.scalar_type());
}

/// Like plain_chunk, but in place: the gradient overwrites the logits.
at::Tensor cpu_chunk(const at::Tensor& logits, const at::Tensor& targets,
                     const at::Tensor& row_weights, const at::Tensor& losses,
                     const LinearCrossEntropySetup& setup) {
  const auto width = logits.size(1);
  const auto grad_scale =
      static_cast<float>(setup.device_grad_scale.defined() ? setup.device_grad_scale.item<double>()
                                                           : setup.grad_scale);
  const float* weights = row_weights.defined() ? row_weights.const_data_ptr<float>() : nullptr;
  at::parallel_for(0, logits.size(0), 32, [&](std::int64_t first, std::int64_t last) {
    std::vector<float> scratch(static_cast<std::size_t>(width));
    ops::kernels::table().cross_entropy(
        {.element = ops::element_of(logits),
         .logits = ops::element_at(logits, first * width),
         .targets = targets.data_ptr<std::int64_t>() + first,
         .row_weights = weights == nullptr ? nullptr : weights + first,
         .losses = losses.data_ptr<double>() + first,
         .scratch = scratch.data(),
         .rows = last - first,
         .width = width,
         .grad_scale = grad_scale,
         .want_grads = setup.want_grads});
  });
  return logits;
}

/// Like cpu_chunk, with a kernel of ops/cuda.
at::Tensor cuda_chunk(const at::Tensor& logits, const at::Tensor& targets,
                      const at::Tensor& row_weights, const at::Tensor& losses,
                      const LinearCrossEntropySetup& setup) {
  ops::cuda::cross_entropy(logits, targets, row_weights, losses,
                           {setup.grad_scale, setup.device_grad_scale}, setup.want_grads);
  return logits;
}

struct CrossEntropyRow {
  bool (*accepts)(const at::Tensor& x);
  /// Rows of a chunk at least. A GPU adds a weight gradient of every chunk in its own memory, which
  /// takes longer than the logits of few rows.
  std::int64_t least_rows;
  at::ScalarType (*loss_type)(const at::Tensor& x);
  decltype(&plain_chunk) chunk;
};

constexpr std::array kCrossEntropy{
    CrossEntropyRow{ops::cpu_accepts, 1, [](const at::Tensor&) { return at::kDouble; }, cpu_chunk},
    CrossEntropyRow{ops::cuda::accepts_cross_entropy, 4096, ops::accumulate_type, cuda_chunk},
    CrossEntropyRow{nullptr, 1, ops::accumulate_type, plain_chunk},
};

/// Returns the loss of every row, [N] (fast path: fp64), and computes the requested gradients. If
/// `correct` [N] is defined, it is set to true where the target is the first of the largest logits.
at::Tensor row_losses(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                      const LinearCrossEntropySetup& setup, ops::Path path,
                      LinearCrossEntropyOutput& out, const at::Tensor& correct = {}) {
  const auto type = ops::accumulate_type(x);
  const CrossEntropyRow& row =
      choose(path_of(ops::Operation::cross_entropy, path), kCrossEntropy, x);
  if (setup.want_grads) {
    out.grad_x = at::empty_like(x, at::MemoryFormat::Contiguous);
    if (x.size(0) == 0 && setup.want_grad_weight)
      out.grad_weight = at::zeros(weight.sizes(), weight.options().dtype(type));
  }
  const auto losses = at::empty({x.size(0)}, x.options().dtype(row.loss_type(x)));
  const auto targets_in_order = targets.contiguous();
  const auto weights_in_order =
      setup.row_weights.defined() ? setup.row_weights.to(type).contiguous() : at::Tensor();
  const auto rows_per_chunk = path == ops::Path::plain ? std::max<std::int64_t>(x.size(0), 1)
                                                       : std::max(setup.chunk_rows, row.least_rows);
  for (std::int64_t first = 0; first < x.size(0); first += rows_per_chunk) {
    const auto rows = std::min(rows_per_chunk, x.size(0) - first);
    const auto inputs = x.narrow(0, first, rows);
    const auto logits = ops::product(inputs, weight.t());  // [rows, V]
    const auto chunk_targets = targets_in_order.narrow(0, first, rows);
    const auto chunk_losses = losses.narrow(0, first, rows);
    const auto chunk_weights =
        weights_in_order.defined() ? weights_in_order.narrow(0, first, rows) : at::Tensor();
    const auto slope = cap_logits(logits, setup.softcap, setup.want_grads);
    if (correct.defined()) correct.narrow(0, first, rows).copy_(logits.argmax(1).eq(chunk_targets));
    const auto grad = row.chunk(logits, chunk_targets, chunk_weights, chunk_losses, setup);
    if (!setup.want_grads) continue;
    if (slope.defined()) grad.mul_(slope);
    const auto grad_rows = out.grad_x.narrow(0, first, rows);
    ops::put_product(grad, weight, grad_rows);
    if (!setup.want_grad_weight) continue;
    if (first == 0) {
      out.grad_weight = ops::outer_product(grad, inputs).to(type);
    } else {
      ops::add_outer_product(grad, inputs, out.grad_weight);
    }
  }
  return losses;
}

}  // namespace

void scale_gradient(const at::Tensor& values, const LinearCrossEntropySetup& setup) {
  if (setup.device_grad_scale.defined()) {
    values.mul_(setup.device_grad_scale);
  } else {
    values.mul_(setup.grad_scale);
  }
}

at::Tensor cap_logits(const at::Tensor& logits, double softcap, bool want_slope) {
  if (softcap == 0) return {};
  logits.div_(softcap).tanh_();
  const at::Tensor slope = want_slope ? 1 - logits.square() : at::Tensor();
  logits.mul_(softcap);
  return slope;
}

void check_targets(const at::Tensor& targets, std::int64_t classes) {
  const auto bad = targets.ne(kIgnoredTarget) & (targets.lt(0) | targets.ge(classes));
  if (bad.any().item<bool>())
    fail_target(targets.masked_select(bad)[0].item<std::int64_t>(), classes);
}

void fail_target(std::int64_t target, std::int64_t classes) {
  fail(ErrorKind::data, "target {}, must be in [0, {}) or {} (ignored)", target, classes,
       kIgnoredTarget);
}

LinearCrossEntropyOutput linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                              const at::Tensor& targets,
                                              const LinearCrossEntropySetup& setup,
                                              ops::Path path) {
  check_inputs(x, weight, targets, setup);
  const at::NoGradGuard no_grad;
  const OperationMark mark(StepWork::head);
  LinearCrossEntropyOutput out;
  const at::Tensor losses = row_losses(x, weight, targets, setup, path, out);
  const at::Tensor weighted = setup.row_weights.defined() ? losses.mul(setup.row_weights) : losses;
  out.loss_sum = weighted.sum().to(ops::accumulate_type(x));
  return out;
}

TokenScores token_scores(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                         const TokenScoresSetup& setup, ops::Path path) {
  const LinearCrossEntropySetup losses{.chunk_rows = setup.chunk_rows,
                                       .want_grads = false,
                                       .targets_checked = setup.targets_checked,
                                       .softcap = setup.softcap};
  check_inputs(x, weight, targets, losses);
  const at::NoGradGuard no_grad;
  TokenScores scores;
  if (setup.want_correct)
    scores.correct = at::empty({x.size(0)}, targets.options().dtype(at::kBool));
  LinearCrossEntropyOutput unused;
  scores.log_probs =
      row_losses(x, weight, targets, losses, path, unused, scores.correct).to(at::kDouble).neg();
  return scores;
}

}  // namespace trireme::objective
