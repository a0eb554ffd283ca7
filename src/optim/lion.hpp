#pragma once
#include "optim/optimizer.hpp"

namespace trireme::optim {

struct LionConfig {
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.99;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("weight_decay", self.weight_decay, "decoupled weight decay of matrices and embeddings");
    visit("beta1", self.beta1, "weight of the momentum in the update direction, in [0, 1)");
    visit("beta2", self.beta2, "decay of the momentum, in [0, 1)");
  }
};

void check(const LionConfig& config, Problems& problems);

/// Lion with decoupled weight decay. Every weight moves by lr:
///   w -= lr * (sign(beta1 * m + (1 - beta1) * g) + weight_decay * w);  m = beta2 * m + (1 - beta2)
/// * g
/// Source: Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2.
class Lion : public Optimizer {
 public:
  using Config = LionConfig;

  Lion(const Config& config, parallel::ParamRegistry& registry, std::span<const ParamRange> params);

  static std::size_t num_slots(const Config& /*config*/) { return 1; }

  void step(std::int64_t update, double lr) override;
  [[nodiscard]] std::vector<OptimizerSlot> slots() override;

 private:
  /// Views of a chunk of this rank's shards.
  struct Chunk {
    double decay = 0;
    at::Tensor weights;
    at::Tensor grads;
    at::Tensor momentum;
  };

  Config config_;
  at::Tensor momentum_;
  std::vector<Chunk> chunks_;
};

}  // namespace trireme::optim
