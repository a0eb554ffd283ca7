#include "ops/late_result.hpp"

#include <torch/csrc/autograd/custom_function.h>

namespace trireme::ops {

void keep(torch::autograd::AutogradContext* ctx, const LateResultPtr& late) {
  if (late) ctx->saved_data["late"] = c10::IValue::make_capsule(late);
}

LateResultPtr awaited_result(torch::autograd::AutogradContext* ctx) {
  const auto kept = ctx->saved_data.find("late");
  if (kept == ctx->saved_data.end()) return {};
  auto late = c10::static_intrusive_pointer_cast<LateResult>(kept->second.toCapsule());
  return late->is_awaited() ? late : LateResultPtr();
}

}  // namespace trireme::ops
