#pragma once
#include <ATen/ATen.h>

#include "model/transformer.hpp"

namespace trireme {

/// Returns the logits [B, T, vocab] of every position in fp32 (fp64 for an fp64 model), without
/// gradients.
inline at::Tensor full_logits(model::Transformer& model, const parallel::Microbatch& batch) {
  const at::NoGradGuard no_grad;
  const at::Tensor head = model.registry().weight(model.head_weight());
  const at::Tensor logits = at::linear(model.hidden(batch), head);
  const double softcap = model.config().logit_softcap;
  if (softcap > 0) logits.div_(softcap).tanh_().mul_(softcap);
  return logits.scalar_type() == at::kDouble ? logits : logits.to(at::kFloat);
}

}  // namespace trireme
