#pragma once
#include <optional>

#include "ops/adamw.hpp"
#include "optim/optimizer.hpp"

namespace trireme::optim {

struct AdamWConfig {
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("weight_decay", self.weight_decay, "decoupled weight decay of matrices and embeddings");
    visit("beta1", self.beta1, "first-moment decay, in [0, 1)");
    visit("beta2", self.beta2, "second-moment decay, in [0, 1)");
    visit("eps", self.eps, "added to the root of the second moment");
  }
};

void check(const AdamWConfig& config, Problems& problems);

/// Parameters with the learning rate `factor` * lr, and with values that replace those of
/// AdamWConfig. An own weight decay applies to all of them, also to vectors.
struct RatedParams {
  std::vector<ParamRange> params;
  double factor = 1;
  std::optional<double> beta1 = {};
  std::optional<double> beta2 = {};
  std::optional<double> weight_decay = {};
};

/// AdamW with decoupled weight decay. If all parameters have the same rate and betas, the kernels of
/// ops/adamw.hpp clip, update and copy them in one pass over memory. Otherwise, or in fp64, the
/// parameters with the same values are one fused ATen call. Source: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019.
class AdamW : public Optimizer {
 public:
  using Config = AdamWConfig;

  AdamW(const Config& config, parallel::ParamRegistry& registry,
        std::span<const ParamRange> params);
  AdamW(const Config& config, parallel::ParamRegistry& registry,
        std::span<const RatedParams> params);

  static std::size_t num_slots(const Config& /*config*/) { return 2; }

  void step(std::int64_t update, double lr) override;
  [[nodiscard]] bool has_one_pass() const override;
  void step_in_one_pass(std::int64_t update, double lr, const at::Tensor& factor) override;
  [[nodiscard]] std::vector<OptimizerSlot> slots() override;

 private:
  /// Parameters with the same decay, rate and betas, as views of this rank's shards.
  struct Group {
    double decay = 0;
    double factor = 1;
    double beta1 = 0;
    double beta2 = 0;
    std::vector<at::Tensor> weights;
    std::vector<at::Tensor> grads;
    std::vector<at::Tensor> exp_avgs;
    std::vector<at::Tensor> exp_avg_sqs;
    std::vector<at::Tensor> steps;  // step number, for the bias corrections
  };

  void add(parallel::ParamRegistry& registry, const RatedParams& rated);

  Config config_;
  at::Tensor exp_avg_;
  at::Tensor exp_avg_sq_;
  std::vector<Group> groups_;
  std::vector<ops::AdamWTensors> pieces_;  // all groups, for one pass
};

}  // namespace trireme::optim
