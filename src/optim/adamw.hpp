#pragma once
#include "optim/optimizer.hpp"

namespace trireme {

/// AdamW with decoupled decay; one fused ATen call for each of the two groups (decay, no decay).
/// Source: Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019.
class AdamW : public Optimizer {
 public:
  AdamW(const OptimConfig& config, ParamRegistry& registry);

  void step(std::int64_t update, double lr) override;
  [[nodiscard]] std::vector<OptimizerSlot> slots() override;

 private:
  /// Parameters with one decay, as views of the flat buffers. Neighbours are merged into one view.
  struct Group {
    double decay = 0;
    std::vector<at::Tensor> weights;
    std::vector<at::Tensor> grads;
    std::vector<at::Tensor> exp_avgs;
    std::vector<at::Tensor> exp_avg_sqs;
    std::vector<at::Tensor>
        steps;  // one scalar each: the fused kernel reads the bias corrections from it
  };

  OptimConfig config_;
  at::Tensor exp_avg_;
  at::Tensor exp_avg_sq_;
  std::vector<Group> groups_;
};

}  // namespace trireme
