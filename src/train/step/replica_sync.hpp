#pragma once
#include "optim/grad_norm.hpp"
#include "optim/optimizer.hpp"
#include "parallel/mesh.hpp"

namespace trireme {

/// Local SGD (parallel.local_steps = K > 1): each dp rank, with its ranks of tp, cp and pp,
/// updates its own replica, and the replicas are averaged after every K steps. Without local
/// steps, all replicas are equal and average() does nothing. Source: Stich, "Local SGD converges
/// fast and communicates little", ICLR 2019.
class ReplicaSync {
 public:
  /// All must outlive this object.
  ReplicaSync(ParamRegistry& registry, Optimizer& optimizer, const Mesh& mesh)
      : registry_(registry), optimizer_(optimizer), mesh_(mesh) {}

  /// Returns the factor of the gradients: the loss of a replica is divided by update_terms / dp
  /// (the mean number of terms of a dp rank) and not by update_terms.
  [[nodiscard]] double grad_factor() const {
    return mesh_.trains_alone() ? mesh_.size(Axis::dp) : 1;
  }

  /// Returns norm and loss of the update over the ranks that share it. Collective over the world.
  [[nodiscard]] GradSummary summarize(const at::Tensor& loss_sum) const;

  /// Records that this rank has changed its weights.
  void updated() { differ_ = mesh_.trains_alone(); }

  /// Returns true if the replicas may differ.
  [[nodiscard]] bool differ() const { return differ_; }

  /// Returns true if the replicas must be averaged after `step`.
  [[nodiscard]] bool due(std::int64_t step) const {
    return mesh_.trains_alone() && step % mesh_.config().local_steps == 0;
  }

  /// Replaces master weights and optimizer state by their mean over the dp ranks, added in rank
  /// order. Collective over dp.
  void average();

 private:
  ParamRegistry& registry_;
  Optimizer& optimizer_;
  const Mesh& mesh_;
  bool differ_ = false;
};

}  // namespace trireme
