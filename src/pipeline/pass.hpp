#pragma once
#include <compare>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::pipeline {

/// An action of one stage on one micro-batch, as in torch.distributed.pipelining. `backward`
/// computes all gradients. Alternatively `input_grad`, which the previous stage waits for, and a
/// deferred `weight_grad` compute them separately.
enum class PassKind { forward, backward, input_grad, weight_grad };

struct Pass {
  PassKind kind = PassKind::forward;
  int stage = 0;
  int micro_batch = 0;

  auto operator<=>(const Pass&) const = default;
};

/// Returns the text of an action, kind, stage and micro-batch: "F0.3", "BW0.3", "B0.3", "W0.3".
std::string text_of(const Pass& pass);

/// Parses the text of an action; nullopt if it is invalid.
std::optional<Pass> parse_pass(std::string_view text);

/// True if the action computes the input gradient, which the previous stage waits for.
constexpr bool gives_input_grad(PassKind kind) {
  return kind == PassKind::backward || kind == PassKind::input_grad;
}

/// True if the weight gradients are complete after the action, so that saved activations are free.
constexpr bool gives_weight_grad(PassKind kind) {
  return kind == PassKind::backward || kind == PassKind::weight_grad;
}

}  // namespace trireme::pipeline
