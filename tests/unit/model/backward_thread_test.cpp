/// Backward functions run on the thread that starts backward. By default, LibTorch runs those of a
/// device other than a CPU on a thread of its own.

#include <ATen/ATen.h>
#include <c10/core/AutogradState.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <stdexcept>
#include <thread>

#include "model/layer.hpp"
#include "support/strict_device.hpp"

namespace trireme::model {
namespace {

at::Tensor ones() {
  return at::ones({1, 2, 3}, at::TensorOptions().device(testing::strict_device()));
}

bool may_use_other_threads() {
  return c10::AutogradState::get_tls_state().get_multithreading_enabled();
}

/// Returns 2 x. Its backward function stores its thread in `found`.
at::Tensor doubled(const at::Tensor& x, std::thread::id& found) {
  const at::Tensor y = x.mul(2);
  if (y.requires_grad())
    y.register_hook([&found](const at::Tensor&) { found = std::this_thread::get_id(); });
  return y;
}

class Doubling : public Layer {
 public:
  explicit Doubling(std::thread::id& found) : found_(found) {}

  [[nodiscard]] at::Tensor forward(const parallel::Microbatch& /*batch*/, const at::Tensor& x,
                                   std::span<const at::Tensor> /*sources*/) const override {
    return doubled(x, found_);
  }

 private:
  std::thread::id& found_;
};

TEST(BackwardThread, LibTorchUsesAnotherThreadByDefault) {
  std::thread::id found;
  const at::Tensor x = ones().requires_grad_(true);
  (void)torch::autograd::grad({doubled(x, found)}, {x}, {ones()});
  EXPECT_NE(found, std::this_thread::get_id());
}

TEST(BackwardThread, ALayerRunsItsBackwardOnTheCallingThread) {
  for (const auto recompute : {parallel::Recompute::none, parallel::Recompute::full}) {
    std::thread::id found;
    const Doubling layer(found);
    const parallel::Microbatch batch;
    LayerActivations saved;
    (void)layer_forward(layer, batch, ones(), recompute, saved);

    const at::Tensor grad = layer_backward(layer, batch, saved, ones());

    EXPECT_EQ(found, std::this_thread::get_id());
    EXPECT_EQ(grad.to(at::kCPU).sum().item<double>(), 12);
    EXPECT_TRUE(may_use_other_threads()) << "the setting of the caller was not restored";
  }
}

/// Returns the recomputed function of x that calls `compute`, and runs its backward alone.
at::Tensor grad_of_recomputed(std::function<at::Tensor(const at::Tensor&)> compute) {
  const at::Tensor x = at::ones({3}).requires_grad_(true);
  const Recomputed result = recomputed(x, std::move(compute));
  return torch::autograd::grad({result.y}, {x}, {at::ones({3})})[0];
}

TEST(BackwardThread, ARecomputedFunctionRunsItsBackwardOnTheCallingThread) {
  bool found = true;
  const at::Tensor grad = grad_of_recomputed([&found](const at::Tensor& in) {
    at::Tensor y = in.mul(2);
    if (y.requires_grad())
      y.register_hook([&found](const at::Tensor&) { found = may_use_other_threads(); });
    return y;
  });

  EXPECT_FALSE(found);
  EXPECT_TRUE(may_use_other_threads());
  EXPECT_EQ(grad.sum().item<double>(), 6);
}

TEST(BackwardThread, AnErrorInBackwardRestoresTheSetting) {
  const auto fails = [](const at::Tensor& in) {
    at::Tensor y = in.mul(2);
    if (y.requires_grad())
      y.register_hook([](const at::Tensor&) { throw std::runtime_error("a backward function"); });
    return y;
  };
  EXPECT_ANY_THROW((void)grad_of_recomputed(fails));
  EXPECT_TRUE(may_use_other_threads());
}

}  // namespace
}  // namespace trireme::model
