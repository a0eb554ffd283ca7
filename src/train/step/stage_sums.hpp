#pragma once
#include <memory>
#include <optional>

#include "core/measures.hpp"
#include "core/timer.hpp"
#include "model/transformer.hpp"
#include "parallel/mesh.hpp"

namespace trireme {

/// Sums over the ranks of pp at the end of an update: the loss, the gradients of a tied embedding
/// on two stages, and the idle time. Without a pipeline all functions do nothing.
class StageSums {
 public:
  /// Declares the measure bubble_share for a pipeline on CPUs. Both arguments must outlive this
  /// object. Collective over pp.
  StageSums(Transformer& model, const Mesh& mesh, Measures& measures);

  /// Broadcasts loss_sum from the last stage by a sum over pp. `passes`: timer that was started
  /// before the first action. `busy_s`: time of the actions without waiting for other stages.
  /// Returns idle time / busy time over all ranks of pp; nullopt if it is not measured or
  /// `has_passes` is false. Collective over pp.
  std::optional<double> add(at::Tensor& loss_sum, const Timer& passes, double busy_s,
                            bool has_passes);

  /// Returns the group of the two ranks with the tied embedding; null on other ranks.
  [[nodiscard]] Communicator* table_group() const { return table_group_.get(); }

 private:
  Transformer& model_;
  const Mesh& mesh_;
  Measures& measures_;
  std::optional<Measures::Id> bubble_share_;
  std::unique_ptr<Communicator> table_group_;
};

}  // namespace trireme
