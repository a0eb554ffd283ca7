#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <utility>

namespace torch::autograd {
struct AutogradContext;
}  // namespace torch::autograd

namespace trireme::ops {

/// The result of an operation that nothing saves for backward. The operation computes it again in
/// its own backward, from its saved inputs, and gives it to its user, which has run backward before.
class LateResult : public torch::CustomClassHolder {
 public:
  using Use = std::function<void(const at::Tensor& result)>;

  /// The user's backward calls this once.
  void wait_for(Use use) { use_ = std::move(use); }

  [[nodiscard]] bool is_awaited() const { return use_ != nullptr; }

  /// The operation's backward calls this if the result is awaited.
  void give(const at::Tensor& result) { std::exchange(use_, nullptr)(result); }

 private:
  Use use_;
};

using LateResultPtr = c10::intrusive_ptr<LateResult>;

/// Saves `late`, which may be null, for the backward of an operation.
void keep(torch::autograd::AutogradContext* ctx, const LateResultPtr& late);

/// Returns the saved object if its result is awaited, otherwise null.
LateResultPtr awaited_result(torch::autograd::AutogradContext* ctx);

}  // namespace trireme::ops
