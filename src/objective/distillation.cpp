#include "objective/distillation.hpp"

#include <array>
#include <cmath>

namespace trireme::objective {
namespace {

constexpr std::array<std::string_view, 2> kDistillationMeans{"ce", "kl"};

}  // namespace

void check(const DistillationConfig& config, Problems& problems) {
  if (!(config.alpha >= 0 && config.alpha <= 1))
    problems.add("distill.alpha", config.alpha, "must be in [0, 1]");
  if (!(config.temperature > 0 && std::isfinite(config.temperature)))
    problems.add("distill.temperature", config.temperature, "must be more than 0, and finite");
}

DistillationObjective::DistillationObjective(parallel::ParamRegistry& registry, const Setup& setup,
                                             std::unique_ptr<Teacher> teacher, Measures& measures)
    : registry_(registry),
      setup_(setup),
      teacher_(std::move(teacher)),
      means_(measures, kDistillationMeans) {}

DistillationOutput DistillationObjective::loss_of(const parallel::Microbatch& batch,
                                                  const at::Tensor& hidden,
                                                  const TargetRows& targets,
                                                  DistillationSetup setup) const {
  setup.alpha = setup_.config.alpha;
  setup.temperature = setup_.config.temperature;
  if (batch.target_weights.defined())
    setup.row_weights = targets.of(batch.target_weights).to(ops::accumulate_type(hidden));
  const TeacherStates teacher = teacher_->states(batch);
  const at::Tensor teacher_rows =
      teacher.hidden.reshape({-1, teacher.hidden.size(-1)}).index_select(0, targets.index);
  const Head head = head_of(registry_, setup_.head, setup_.tensor, ops::Path::plain);
  setup.targets_checked = check_targets(batch, head.classes);
  return linear_distillation(targets.rows, head, teacher_rows, teacher.head, targets.targets,
                             setup);
}

at::Tensor DistillationObjective::forward(const parallel::Microbatch& batch,
                                          const at::Tensor& hidden, double grad_scale,
                                          ObjectiveGrads& saved) {
  const at::NoGradGuard no_grad;
  const TargetRows targets(batch, hidden);
  const auto loss = loss_of(batch, hidden, targets, {.grad_scale = grad_scale});
  saved = {targets.spread(loss.grad_x, hidden), loss.grad_weight};
  const bool tells = setup_.tensor.rank() == 0;
  const std::array<double, 2> sums{tells ? loss.ce_sum.item<double>() : 0,
                                   tells ? loss.kl_sum.item<double>() : 0};
  means_.add(batch.step, sums, tells ? static_cast<double>(targets.index.numel()) : 0);
  return loss.loss_sum;
}

void DistillationObjective::backward(ObjectiveGrads& saved) {
  add_head_gradient(registry_, setup_.head, saved);
}

at::Tensor DistillationObjective::evaluate(const parallel::Microbatch& batch,
                                           const at::Tensor& hidden) const {
  const at::NoGradGuard no_grad;
  return loss_of(batch, hidden, TargetRows(batch, hidden), {.want_grads = false}).loss_sum;
}

}  // namespace trireme::objective
