#include "model/stages/stage_forward.hpp"

#include <vector>

namespace trireme {

void forward_stages(const Transformer& model, StageLinks& links, int pp_rank,
                    pipeline::Schedule schedule, std::span<const Microbatch> micro_batches,
                    const std::function<void(std::size_t, const at::Tensor&)>& call) {
  for (std::vector<pipeline::Pass>& list : schedule.lists)
    std::erase_if(
        list, [](const pipeline::Pass& pass) { return pass.kind != pipeline::PassKind::forward; });
  links.begin(schedule, [&](int i) {
    return space_between_stages(model, micro_batches[static_cast<std::size_t>(i)]);
  });
  for (const pipeline::Pass& pass : schedule.lists[static_cast<std::size_t>(pp_rank)]) {
    const auto number = static_cast<std::size_t>(pass.micro_batch);
    const at::Tensor in = links.receive(StageCargo::activations, pass.stage, pass.micro_batch);
    const at::Tensor out =
        model.output(schedule.placement.place_on_rank(pass.stage), micro_batches[number], in);
    if (pass.stage + 1 == schedule.placement.stages()) {
      call(number, out);
    } else {
      links.send(StageCargo::activations, pass.stage, pass.micro_batch, out);
    }
    links.poll();
  }
  links.finish();
}

at::Tensor space_between_stages(const Transformer& model, const Microbatch& batch) {
  const TensorGroup& tensor = model.tensor();
  const std::int64_t tokens =
      tensor.sequence_parallel() ? batch.length() / tensor.size() : batch.length();
  return at::empty({batch.rows(), tokens, model.config().hidden_size},
                   at::TensorOptions()
                       .dtype(model.registry().dtypes().compute)
                       .device(model.registry().device()));
}

}  // namespace trireme
