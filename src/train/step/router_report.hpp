#pragma once
#include "core/measures.hpp"
#include "model/transformer.hpp"
#include "parallel/collectives.hpp"
#include "parallel/mesh.hpp"

namespace trireme {

/// Reports the routing of a model with experts as two measures. `aux_loss` is this rank's part of
/// the auxiliary loss. `expert_load_max` is the largest load of an expert in any layer, divided by
/// the mean load, over all ranks (with local steps: of this rank). Does nothing for a model
/// without experts.
class RouterReport {
 public:
  /// All must outlive this object.
  RouterReport(Transformer& model, const Mesh& mesh, Measures& measures)
      : model_(model), mesh_(mesh), measures_(measures) {
    if (!model.config().moe.on()) return;
    aux_loss_ = measures.declare({"aux_loss", Combine::sum});
    expert_load_max_ = measures.declare({"expert_load_max", Combine::max});
  }

  /// Resets the routing statistics. Call it before the first pass of an update.
  void begin() {
    const ModelConfig& config = model_.config();
    if (config.moe.on())
      model_.router_tally().reset(config.moe, config.num_layers, model_.registry().device());
  }

  /// Records the measures of an update. `scale`: factor of its auxiliary loss. Collective over the
  /// world, except with local steps.
  void report(double scale) {
    const MoeConfig& moe = model_.config().moe;
    if (!moe.on()) return;
    const RouterTally& tally = model_.router_tally();
    if (!mesh_.trains_alone())
      all_reduce(mesh_.world(), tally.counts, ReduceOp::sum, "load of experts")->wait();
    const auto num_experts = static_cast<double>(moe.num_experts);
    const at::Tensor mean = tally.counts.sum(1) / num_experts;
    const at::Tensor load = tally.counts.amax(1) / mean.clamp_min(1.0 / num_experts);
    const at::Tensor both = at::stack({tally.aux_loss / scale, load.amax()}).to(at::kCPU);
    measures_.record(aux_loss_, both[0].item<double>());
    measures_.record(expert_load_max_, both[1].item<double>());
  }

 private:
  Transformer& model_;
  const Mesh& mesh_;
  Measures& measures_;
  Measures::Id aux_loss_ = 0;
  Measures::Id expert_load_max_ = 0;
};

}  // namespace trireme
