#include "model/layer.hpp"

#include <c10/core/AutogradState.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

namespace trireme::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// While it exists, autograd runs backward functions on the calling thread, as on a CPU. By
/// default, the functions of a GPU run on a thread of autograd. This thread has neither the
/// operation record nor the profile ranges of the calling thread, and it must not call MPI.
/// Source: torch.autograd.set_multithreading_enabled.
class BackwardOnThisThread {
 public:
  BackwardOnThisThread() { state().set_multithreading_enabled(false); }

  ~BackwardOnThisThread() { state().set_multithreading_enabled(before_); }

  BackwardOnThisThread(const BackwardOnThisThread&) = delete;
  BackwardOnThisThread& operator=(const BackwardOnThisThread&) = delete;

 private:
  static c10::AutogradState& state() { return c10::AutogradState::get_tls_state(); }

  bool before_ = state().get_multithreading_enabled();
};

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
    const BackwardOnThisThread guard;
    const auto result = torch::autograd::grad({run.result()}, {run.x}, {grads[0]});
    run.y.reset();
    run.x.reset();
    return {result[0], {}};
  }
};

at::Tensor run_with_graph(const Layer& layer, const parallel::Microbatch& batch,
                          LayerActivations& saved) {
  const at::AutoGradMode with_grad(true);
  saved.input.requires_grad_(true);
  for (at::Tensor& source : saved.sources) source.requires_grad_(true);
  return layer.forward(batch, saved.input, saved.sources);
}

}  // namespace

at::Tensor layer_forward(const Layer& layer, const parallel::Microbatch& batch, const at::Tensor& x,
                         parallel::Recompute recompute, LayerActivations& saved,
                         std::span<const at::Tensor> sources) {
  saved.input = x.detach();
  saved.sources.clear();
  for (const at::Tensor& source : sources) saved.sources.push_back(source.detach());
  if (recompute == parallel::Recompute::full) {
    const at::NoGradGuard no_grad;
    return layer.forward(batch, saved.input, saved.sources);
  }
  const at::Tensor output = run_with_graph(layer, batch, saved);
  saved.graph = torch::autograd::impl::gradient_edge(output);
  return output.detach();
}

at::Tensor layer_backward(const Layer& layer, const parallel::Microbatch& batch,
                          LayerActivations& saved, const at::Tensor& grad,
                          std::vector<at::Tensor>* source_grads) {
  if (!saved.graph.is_valid())
    saved.graph = torch::autograd::impl::gradient_edge(run_with_graph(layer, batch, saved));
  std::vector<torch::autograd::Edge> inputs{
      {torch::autograd::impl::grad_accumulator(saved.input), 0}};
  if (source_grads != nullptr)
    for (const at::Tensor& source : saved.sources)
      inputs.emplace_back(torch::autograd::impl::grad_accumulator(source), 0);
  const BackwardOnThisThread guard;
  const auto grads = torch::autograd::Engine::get_default_engine().execute(
      {saved.graph}, {grad}, /*keep_graph=*/false, /*create_graph=*/false,
      /*accumulate_grad=*/false, inputs);
  saved = {};
  if (source_grads != nullptr) source_grads->assign(grads.begin() + 1, grads.end());
  return grads[0];
}

Recomputed recomputed(const at::Tensor& x, std::function<at::Tensor(const at::Tensor& x)> compute) {
  const auto run = c10::make_intrusive<SecondRun>();
  run->compute = std::move(compute);
  run->x = x.detach();
  return {RecomputedFunction::apply(x, run), [run] { return run->result().detach(); }};
}

}  // namespace trireme::model
