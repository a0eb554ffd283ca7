#include "objective/linear_cross_entropy.hpp"

#include <torch/torch.h>

#include "core/error.hpp"
#include "ops/fast.hpp"

namespace trireme::ops {
namespace {

void check_inputs(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                  const LinearCrossEntropySetup& setup) {
  const auto fit = x.dim() == 2 && weight.dim() == 2 && targets.dim() == 1 &&
                   x.size(1) == weight.size(1) && x.size(0) == targets.size(0) &&
                   x.scalar_type() == weight.scalar_type() && targets.scalar_type() == at::kLong &&
                   setup.chunk_rows > 0;
  if (!fit) {
    fail(
        ErrorKind::internal,
        "linear_cross_entropy: x {}, weight {}, targets {}: must be [N, D], [V, D] of one dtype and [N] int64",
        x.sizes(), weight.sizes(), targets.sizes());
  }
  if (!targets.device().is_cpu()) return;
  const auto bad = targets.ne(kIgnoredTarget) & (targets.lt(0) | targets.ge(weight.size(0)));
  if (bad.any().item<bool>()) {
    fail(ErrorKind::data, "target {}, must be in [0, {}) or {} (ignored)",
         targets.masked_select(bad)[0].item<std::int64_t>(), weight.size(0), kIgnoredTarget);
  }
}

/// One chunk: adds its loss to `loss_sum`, returns grad_scale * d loss / d logits in x's dtype.
at::Tensor plain_chunk(const at::Tensor& logits, const at::Tensor& targets, at::Tensor& loss_sum,
                       const LinearCrossEntropySetup& setup) {
  const auto log_probs = at::log_softmax(logits, -1, loss_sum.scalar_type());
  const auto valid = targets.ne(kIgnoredTarget).unsqueeze(1);  // [rows, 1]
  const auto picks = targets.clamp_min(0).unsqueeze(1);        // [rows, 1]
  loss_sum.sub_(log_probs.gather(1, picks).masked_fill(valid.logical_not(), 0).sum());
  if (!setup.want_grads) return {};
  auto grad = log_probs.exp();
  grad.scatter_add_(1, picks, at::full_like(picks, -1, grad.scalar_type()));
  return grad.mul_(setup.grad_scale).mul_(valid).to(logits.scalar_type());
}

/// The same in place: `logits` become the gradient. `losses` [rows] fp64 are the chunk's.
void fast_chunk(const at::Tensor& logits, const at::Tensor& targets, double* losses,
                const LinearCrossEntropySetup& setup) {
  const auto width = logits.size(1);
  at::parallel_for(0, logits.size(0), 32, [&](std::int64_t first, std::int64_t last) {
    std::vector<float> scratch(static_cast<std::size_t>(width));
    kernels::table().cross_entropy({.element = element_of(logits),
                                    .logits = element_at(logits, first * width),
                                    .targets = targets.data_ptr<std::int64_t>() + first,
                                    .losses = losses + first,
                                    .scratch = scratch.data(),
                                    .rows = last - first,
                                    .width = width,
                                    .grad_scale = static_cast<float>(setup.grad_scale),
                                    .want_grads = setup.want_grads});
  });
}

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

struct LinearCrossEntropyFunction : torch::autograd::Function<LinearCrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& targets, LinearCrossEntropySetup setup, bool fast) {
    setup.want_grads = x.requires_grad() || weight.requires_grad();
    auto out =
        linear_cross_entropy_forward(x, weight, targets, setup, fast ? Path::fast : Path::plain);
    ctx->save_for_backward({out.grad_x, out.grad_weight});
    ctx->saved_data["grad_scale"] = setup.grad_scale;
    ctx->saved_data["weight_type"] = weight.scalar_type();
    return out.loss_sum;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto saved = ctx->get_saved_variables();
    const auto type = ctx->saved_data["weight_type"].toScalarType();
    const auto factor = grads[0] / ctx->saved_data["grad_scale"].toDouble();
    if (factor.device().is_cpu() && factor.item<double>() == 1.0) {
      return {saved[0], saved[1].to(type), {}, {}, {}};
    }
    return {
        (saved[0] * factor).to(saved[0].scalar_type()), (saved[1] * factor).to(type), {}, {}, {}};
  }
};

}  // namespace

LinearCrossEntropyOutput linear_cross_entropy_forward(const at::Tensor& x, const at::Tensor& weight,
                                                      const at::Tensor& targets,
                                                      const LinearCrossEntropySetup& setup,
                                                      Path path) {
  check_inputs(x, weight, targets, setup);
  const at::NoGradGuard no_grad;
  const auto type = accumulate_type(x);
  LinearCrossEntropyOutput out{at::zeros({}, x.options().dtype(type)), {}, {}};
  if (setup.want_grads) {
    out.grad_x = at::empty_like(x, at::MemoryFormat::Contiguous);
    if (x.size(0) == 0) out.grad_weight = at::zeros(weight.sizes(), weight.options().dtype(type));
  }
  const bool fast = takes_fast_path(path, x);
  const auto targets_in_order = targets.contiguous();
  const auto losses = at::empty({fast ? x.size(0) : 0}, at::kDouble);
  const auto rows_per_chunk =
      path == Path::plain ? std::max<std::int64_t>(x.size(0), 1) : setup.chunk_rows;
  for (std::int64_t first = 0; first < x.size(0); first += rows_per_chunk) {
    const auto rows = std::min(rows_per_chunk, x.size(0) - first);
    const auto inputs = x.narrow(0, first, rows);
    const auto logits = at::mm(inputs, weight.t());  // [rows, V]
    auto grad = logits;
    if (fast) {
      fast_chunk(logits, targets_in_order.narrow(0, first, rows), losses.data_ptr<double>() + first,
                 setup);
    } else {
      grad = plain_chunk(logits, targets.narrow(0, first, rows), out.loss_sum, setup);
    }
    if (!setup.want_grads) continue;
    auto grad_rows = out.grad_x.narrow(0, first, rows);
    at::mm_out(grad_rows, grad, weight);
    const auto grad_weight = at::mm(grad.t(), inputs);
    if (first == 0) {
      out.grad_weight = grad_weight.to(type);
    } else {
      out.grad_weight.add_(grad_weight);
    }
  }
  if (fast) out.loss_sum.copy_(losses.sum());
  return out;
}

at::Tensor linear_cross_entropy(const at::Tensor& x, const at::Tensor& weight,
                                const at::Tensor& targets, const LinearCrossEntropySetup& setup,
                                Path path) {
  return LinearCrossEntropyFunction::apply(x, weight, targets, setup, path == Path::fast);
}

}  // namespace trireme::ops
