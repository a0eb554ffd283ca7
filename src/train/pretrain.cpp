#include "objective/cross_entropy.hpp"
#include "train/task.hpp"

namespace trireme {

/// Next-token prediction over whole documents.
const Task kPretrain{
    .name = "pretrain",
    .set_kind = "pretrain",
    .make_objective = [](const RunConfig& config,
                         Transformer& model) -> std::unique_ptr<Objective> {
      const auto path = config.train.fused_ops ? ops::Path::fast : ops::Path::plain;
      return std::make_unique<CrossEntropy>(model.registry(), model.head_weight(), path);
    }};

}  // namespace trireme
