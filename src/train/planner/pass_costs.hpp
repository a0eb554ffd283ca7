#pragma once
#include <cstdint>
#include <vector>

#include "train/cost/rank_widths.hpp"
#include "train/cost/state_bytes.hpp"
#include "train/planner/cluster.hpp"

namespace trireme::planner {

/// What no data sheet says: fitted to measured steps (fit.hpp), by default to Megatron-LM's nine
/// published ones (tests/unit/train/planner).
struct TimeConstants {
  double efficiency = 0.599;       // of the peak, that products reach
  double elementwise_bytes = 527;  // moved beside products by a block, a token and an element of
                                   // its width, forward and backward, in 16 bits
  double tp_hidden = 0.704;        // of exchanges over tp, with parallel.tp_chunks
  double network_factor = 1;       // time of exchanges over the network's model
  double overhead_s = 0;           // of an update, on the host
};

/// Seconds by cause. Of exchanges what computation does not hide.
struct Seconds {
  double compute = 0;
  double tp = 0;
  double cp = 0;
  double ep = 0;
  double dp = 0;

  [[nodiscard]] double sum() const { return compute + tp + cp + ep + dp; }

  Seconds& add(const Seconds& other, double times = 1);
};

/// Of one stage or a part of it, for one micro-batch.
struct PassCost {
  Seconds forward;
  Seconds input_grad;
  Seconds weight_grad;

  PassCost& add(const PassCost& other, double times = 1);

  [[nodiscard]] double backward_s() const { return input_grad.sum() + weight_grad.sum(); }

  [[nodiscard]] double sum() const { return forward.sum() + backward_s(); }
};

/// Costs of a rank's parts of the model: products by a roofline (FLOPs at `efficiency` of the peak, or
/// bytes), all else by its bytes, exchanges by the network's model. Attention counts all pairs at the
/// efficiency of products: a causal kernel computes half of them at about half of it.
class PassCosts {
 public:
  PassCosts(const UpdateFacts& facts, const Cluster& cluster, const TimeConstants& constants);

  [[nodiscard]] const PassCost& block(bool experts) const { return experts ? experts_ : dense_; }

  [[nodiscard]] const PassCost& embedding() const { return embedding_; }

  /// The loss gives its gradients at once: all three products are in the forward pass.
  [[nodiscard]] const PassCost& head() const { return head_; }

  /// Elements of weights that a rank computes with.
  [[nodiscard]] Elements weights(bool experts) const;
  [[nodiscard]] double table_weights() const;
  /// Between two stages.
  [[nodiscard]] double transfer_s() const;

  [[nodiscard]] GroupShape data_group() const;    // that shares or sums dense weights
  [[nodiscard]] GroupShape expert_group() const;  // the same of experts

  /// Over data ranks, with ZeRO's shards: sum of gradients, and weights that come back.
  [[nodiscard]] double reduce_s(double elements, GroupShape group) const;
  [[nodiscard]] double gather_weights_s(double elements, GroupShape group) const;

  [[nodiscard]] double memory_s(double bytes) const;

 private:
  struct Product {
    double rows = 0;
    double inner = 0;
    double columns = 0;
  };

  [[nodiscard]] double product_s(const Product& product) const;
  [[nodiscard]] std::vector<Product> attention_products() const;
  [[nodiscard]] std::vector<Product> mlp_products(bool experts) const;
  [[nodiscard]] double expert_products_s() const;
  [[nodiscard]] double expert_elements() const;
  [[nodiscard]] double elementwise_s() const;
  [[nodiscard]] double attention_s() const;
  [[nodiscard]] double tp_exchange_s() const;
  [[nodiscard]] double cp_exposed_s(double attention_s, double messages) const;
  [[nodiscard]] double ring_merge_s() const;
  [[nodiscard]] double ep_exchange_s() const;
  [[nodiscard]] PassCost block_cost(bool experts) const;
  void add_sharded_weights(bool experts, PassCost& cost) const;
  [[nodiscard]] PassCost head_cost() const;

  UpdateFacts facts_;
  Cluster cluster_;
  TimeConstants constants_;
  Network network_;
  double flops_per_s_;
  double element_;
  double tp_;
  double etp_;
  double ep_;
  double tokens_;
  RankWidths here_;
  PassCost dense_;
  PassCost experts_;
  PassCost embedding_;
  PassCost head_;
};

}  // namespace trireme::planner
