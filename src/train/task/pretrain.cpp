#include "train/task/pretrain.hpp"

#include "objective/cross_entropy.hpp"

namespace trireme {
namespace {

class Pretrain final : public Task {
 public:
  [[nodiscard]] std::string_view set_kind() const override { return "pretrain"; }

  [[nodiscard]] std::unique_ptr<Objective> make_objective(const RunConfig& config,
                                                          Transformer& model,
                                                          Measures& /*measures*/) const override {
    const auto path = config.train.fused_ops ? ops::Path::fast : ops::Path::plain;
    return std::make_unique<CrossEntropy>(model.registry(), model.head_weight(), path,
                                          model.tensor());
  }
};

}  // namespace

std::unique_ptr<Task> make_pretrain() {
  return std::make_unique<Pretrain>();
}

}  // namespace trireme
