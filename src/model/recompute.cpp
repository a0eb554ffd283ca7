#include "model/recompute.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

namespace trireme {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// The second run of forward, started by its first reader and freed with the gradient of x.
struct SecondRun : torch::CustomClassHolder {
  std::function<at::Tensor(const at::Tensor& x)> compute;
  at::Tensor x;  // a leaf of the second graph
  at::Tensor y;

  const at::Tensor& result() {
    if (y.defined()) return y;
    const at::AutoGradMode with_grad(true);
    x.requires_grad_(true);
    return y = compute(x);
  }
};

struct RecomputedFunction : torch::autograd::Function<RecomputedFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const c10::intrusive_ptr<SecondRun>& run) {
    ctx->saved_data["run"] = c10::IValue::make_capsule(run);
    return run->compute(x);
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto holder = ctx->saved_data["run"].toCapsule();
    auto& run = static_cast<SecondRun&>(*holder);
    const auto result = torch::autograd::grad({run.result()}, {run.x}, {grads[0]});
    run.y.reset();
    run.x.reset();
    return {result[0], {}};
  }
};

}  // namespace

Recomputed recomputed(const at::Tensor& x, std::function<at::Tensor(const at::Tensor& x)> compute) {
  const auto run = c10::make_intrusive<SecondRun>();
  run->compute = std::move(compute);
  run->x = x.detach();
  return {RecomputedFunction::apply(x, run), [run] { return run->result().detach(); }};
}

}  // namespace trireme
