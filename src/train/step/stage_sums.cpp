#include "train/step/stage_sums.hpp"

#include "parallel/collectives.hpp"

namespace trireme {

StageSums::StageSums(Transformer& model, const Mesh& mesh, Measures& measures)
    : model_(model), mesh_(mesh), measures_(measures) {
  Communicator& pp = mesh.group(Axis::pp);
  if (pp.size() == 1) return;
  if (model.registry().device().is_cpu())
    bubble_share_ = measures.declare({"bubble_share", Combine::mean});
  if (!model.config().tie_embeddings) return;
  const auto table = model.table_in_two();
  const bool trained = table && !model.registry().layout().units()[*table].frozen;
  table_group_ = pp.split(trained ? 0 : -1, pp.rank(), "tied");
}

std::optional<double> StageSums::add(at::Tensor& loss_sum, const Timer& passes, double busy_s,
                                     bool has_passes) {
  Communicator& pp = mesh_.group(Axis::pp);
  if (pp.size() == 1) return std::nullopt;
  const at::Tensor sums = at::stack({loss_sum, at::full_like(loss_sum, busy_s)});
  all_reduce(pp, sums, ReduceOp::sum, "loss")->wait();
  loss_sum = sums[0];
  std::optional<double> bubble_share;
  if (bubble_share_ && has_passes) {  // the sum above has synchronized all ranks
    bubble_share = passes.seconds() * pp.size() / sums[1].item<double>() - 1;
    measures_.record(*bubble_share_, *bubble_share);
  }
  if (table_group_) {
    const at::Tensor grads = model_.registry().grad_part(*model_.table_in_two());
    all_reduce(*table_group_, grads, ReduceOp::sum, "grads of tied table")->wait();
  }
  return bubble_share;
}

}  // namespace trireme
