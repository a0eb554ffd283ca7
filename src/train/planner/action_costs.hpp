#pragma once
#include <cstdint>
#include <vector>

#include "train/cost/rank_widths.hpp"
#include "train/cost/state_bytes.hpp"
#include "train/planner/cluster.hpp"

namespace trireme::planner {

/// Constants that no data sheet gives. They are fitted to measured steps (calibration.hpp); the
/// defaults are fitted to the nine published steps of Megatron-LM (tests/unit/train/planner).
struct TimeConstants {
  double efficiency = 0.599;       // fraction of the peak that matrix products reach
  double elementwise_bytes = 527;  // bytes of elementwise operations per block, token and hidden
                                   // element, forward and backward, for 16-bit elements
  double tp_hidden = 0.704;        // hidden fraction of tp communication with parallel.tp_chunks
  double network_factor = 1;       // measured / predicted communication time
  double overhead_s = 0;           // host time per optimizer step
};

/// Seconds by cause. Communication counts only its exposed time.
struct Seconds {
  double compute = 0;
  double tp = 0;
  double cp = 0;
  double ep = 0;
  double dp = 0;

  [[nodiscard]] double sum() const { return compute + tp + cp + ep + dp; }

  Seconds& add(const Seconds& other, double times = 1);
};

/// The cost of one stage, or of a part of it, for one micro batch.
struct ActionCost {
  Seconds forward;
  Seconds input_grad;
  Seconds weight_grad;

  ActionCost& add(const ActionCost& other, double times = 1);

  [[nodiscard]] double backward_s() const { return input_grad.sum() + weight_grad.sum(); }

  [[nodiscard]] double sum() const { return forward.sum() + backward_s(); }
};

/// Predicts the costs of a rank's parts of the model. Matrix products follow a roofline (FLOPs at
/// `efficiency` of the peak, or bytes), other operations their bytes, communication the network
/// model. Attention counts all pairs of tokens at the efficiency of products, because a causal
/// kernel computes half of the pairs at about half of the efficiency.
class ActionCosts {
 public:
  ActionCosts(const train::UpdateFacts& facts, const Cluster& cluster,
              const TimeConstants& constants);

  [[nodiscard]] const ActionCost& block(bool experts) const { return experts ? experts_ : dense_; }

  [[nodiscard]] const ActionCost& embedding() const { return embedding_; }

  /// The cost of the head. All three products count as forward, because the loss computes its
  /// gradients.
  [[nodiscard]] const ActionCost& head() const { return head_; }

  /// Returns the weight elements of one block on this rank.
  [[nodiscard]] train::Elements weights(bool experts) const;
  [[nodiscard]] double table_weights() const;
  /// Returns the time of a message between two stages.
  [[nodiscard]] double transfer_s() const;

  [[nodiscard]] GroupShape data_group() const;     // ranks that shard or reduce dense weights
  [[nodiscard]] GroupShape context_group() const;  // ranks of cp
  [[nodiscard]] GroupShape expert_group() const;   // ranks that shard or reduce experts

  /// Returns the time to reduce gradients, or to gather weights, over data ranks with ZeRO
  /// sharding.
  [[nodiscard]] double reduce_s(double elements, GroupShape group) const;
  [[nodiscard]] double gather_weights_s(double elements, GroupShape group) const;

  [[nodiscard]] double memory_s(double bytes) const;

  /// Returns the time of matrix products.
  [[nodiscard]] double flops_s(double flops) const { return flops / flops_per_s_; }

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
  /// Returns the time of residual terms and value embeddings.
  [[nodiscard]] double stream_options_s() const;
  [[nodiscard]] double attention_s() const;
  [[nodiscard]] double tp_exchange_s() const;
  [[nodiscard]] double cp_exposed_s(double attention_s, double messages) const;
  [[nodiscard]] double ring_merge_s() const;
  [[nodiscard]] double ep_exchange_s() const;
  [[nodiscard]] ActionCost block_cost(bool experts) const;
  void add_sharded_weights(bool experts, ActionCost& cost) const;
  [[nodiscard]] ActionCost head_cost() const;

  train::UpdateFacts facts_;
  Cluster cluster_;
  TimeConstants constants_;
  Network network_;
  double flops_per_s_;
  double element_;
  double tp_;
  double etp_;
  double ep_;
  double tokens_;
  train::RankWidths here_;
  ActionCost dense_;
  ActionCost experts_;
  ActionCost embedding_;
  ActionCost head_;
};

}  // namespace trireme::planner
