#pragma once
#include "optim/optimizer.hpp"

namespace trireme::optim {

struct SgdConfig {
  double weight_decay = 0.1;
  double momentum = 0;
  bool nesterov = false;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("weight_decay", self.weight_decay,
          "weight decay of matrices and embeddings, added to the gradient");
    visit("momentum", self.momentum, "share of the last direction that is kept, in [0, 1)");
    visit("nesterov", self.nesterov, "look ahead along the momentum, which must be above 0");
  }
};

void check(const SgdConfig& config, Problems& problems);

/// Stochastic gradient descent like torch.optim.SGD without dampening, in its fused form:
///   g += weight_decay * w;  m = momentum * m + g;  w -= lr * (m, or g + momentum * m with
/// Nesterov)
/// Source: Sutskever et al., "On the importance of initialization and momentum", ICML 2013.
class Sgd : public Optimizer {
 public:
  using Config = SgdConfig;

  Sgd(const Config& config, parallel::ParamRegistry& registry, std::span<const ParamRange> params);

  static std::size_t num_slots(const Config& config) { return config.momentum > 0 ? 1 : 0; }

  void step(std::int64_t update, double lr) override;
  [[nodiscard]] std::vector<OptimizerSlot> slots() override;

 private:
  struct Group {
    double decay = 0;
    std::vector<at::Tensor> weights;
    std::vector<at::Tensor> grads;
    std::vector<at::Tensor> momentum_buffers;  // empty without momentum
  };

  Config config_;
  at::Tensor momentum_buffer_;  // undefined without momentum
  std::vector<Group> groups_;
};

}  // namespace trireme::optim
