#pragma once
#include <memory>
#include <optional>

#include "core/measures.hpp"
#include "core/timer.hpp"
#include "model/transformer.hpp"
#include "parallel/mesh.hpp"

namespace trireme {

/// Sums over the ranks of pp, after the passes of an update: the loss, the gradients of a tied
/// embedding that two stages hold, and the idle time. Without a pipeline all functions do nothing.
class StageSums {
 public:
  /// Collective over pp. Both must outlive this object. Declares the measure bubble_share for a
  /// pipeline on CPUs.
  StageSums(Transformer& model, const Mesh& mesh, Measures& measures);

  /// Makes loss_sum, which the last stage has, that of all ranks of pp. `passes`: started before
  /// the first pass. `busy_s`: the time of the passes without the wait for other stages. Returns idle
  /// over busy time of all ranks of pp; nullopt unless the measure is declared and `has_passes`.
  std::optional<double> add(at::Tensor& loss_sum, const Timer& passes, double busy_s,
                            bool has_passes);

  /// Returns the group of the two ranks that hold a tied embedding; null on other ranks.
  [[nodiscard]] Communicator* table_group() const { return table_group_.get(); }

 private:
  Transformer& model_;
  const Mesh& mesh_;
  Measures& measures_;
  std::optional<Measures::Id> bubble_share_;
  std::unique_ptr<Communicator> table_group_;
};

}  // namespace trireme
