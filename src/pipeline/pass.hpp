#pragma once
#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::pipeline {

/// What one stage does with one micro-batch. The gradients of a stage are made at once (`backward`),
/// or in two passes: the one that the stage before waits for, then that of the weights.
enum class PassKind { forward, backward, input_grad, weight_grad };

struct Pass {
  PassKind kind = PassKind::forward;
  int stage = 0;
  int micro_batch = 0;

  auto operator<=>(const Pass&) const = default;
};

/// "F0.3", "BW0.3", "B0.3", "W0.3": kind, stage, micro-batch.
std::string text_of(const Pass& pass);

/// The pass that such a text names.
std::optional<Pass> parse_pass(std::string_view text);

/// Whether it gives the stage before what that waits for.
constexpr bool gives_input_grad(PassKind kind) {
  return kind == PassKind::backward || kind == PassKind::input_grad;
}

/// Whether the weights' gradients are complete after it, and what forward kept is free.
constexpr bool gives_weight_grad(PassKind kind) {
  return kind == PassKind::backward || kind == PassKind::weight_grad;
}

}  // namespace trireme::pipeline
