#include "train/task/critic.hpp"

#include <ATen/core/grad_mode.h>

#include <utility>

#include "core/error.hpp"
#include "optim/schedule.hpp"

namespace trireme::train {

Critic::Critic(const Setup& setup)
    : transformer_(registry_, setup.model, setup.stages, setup.options),
      objective_(registry_, {transformer_.head_weight(), setup.model.hidden_size, setup.value,
                             transformer_.has_head(), transformer_.tensor()}),
      optimizer_((registry_.allocate(setup.mesh, setup.dtypes, setup.device),
                  transformer_.prepare(),
                  optim::make_optimizer(setup.optim, registry_, setup.total_steps))),
      scaler_(/*dynamic=*/false),
      step_({transformer_, objective_, *optimizer_, scaler_, setup.mesh, measures_},
            setup.optim.clip_norm),
      state_(registry_, *optimizer_),
      optim_(setup.optim),
      lr_(setup.lr),
      total_steps_(setup.total_steps) {}

void Critic::values(std::span<const parallel::Microbatch> batches,
                    const std::function<void(std::size_t, const at::Tensor&)>& use) {
  const at::NoGradGuard no_grad;
  step_.forward(batches, [&](std::size_t i, const at::Tensor& hidden) {
    use(i, objective_.values(batches[i], hidden));
  });
}

void Critic::set_batches(std::vector<data::Batch> batches, std::int64_t update_terms) {
  batches_ = std::move(batches);
  update_terms_ = update_terms;
}

UpdateResult Critic::update(std::int64_t step, std::int64_t update) {
  const double share = optim::learning_rate(optim_, step, total_steps_) / optim_.lr;
  const UpdateResult result = step_.run(batches_, update_terms_, step, update, share * lr_);
  if (result.skipped) {
    fail(ErrorKind::numeric,
         "step {}: the loss or the gradient of the critic is not finite. Its gradient norm is {}.",
         step, result.grad_norm);
  }
  return result;
}

std::vector<checkpoint::StateTensor> Critic::saved_tensors() const {
  std::vector<checkpoint::StateTensor> tensors = state_.tensors();
  for (checkpoint::StateTensor& tensor : tensors) tensor.name = cat(kCriticPrefix, tensor.name);
  return tensors;
}

}  // namespace trireme::train
