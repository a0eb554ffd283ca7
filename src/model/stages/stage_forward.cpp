#include "model/stages/stage_forward.hpp"

#include <vector>

namespace trireme::model {

void forward_stages(const Transformer& model, parallel::StageP2P& links, int pp_rank,
                    pipeline::Schedule schedule,
                    std::span<const parallel::Microbatch> micro_batches,
                    const std::function<void(std::size_t, const at::Tensor&)>& call) {
  for (std::vector<pipeline::StageAction>& list : schedule.lists)
    std::erase_if(list, [](const pipeline::StageAction& pass) {
      return pass.kind != pipeline::ActionKind::forward;
    });
  links.begin(schedule, [&](int i) {
    return stage_message_buffer(model, micro_batches[static_cast<std::size_t>(i)]);
  });
  for (const pipeline::StageAction& pass : schedule.lists[static_cast<std::size_t>(pp_rank)]) {
    const auto number = static_cast<std::size_t>(pass.micro_batch);
    const at::Tensor in =
        links.receive(parallel::StageMessage::activations, pass.stage, pass.micro_batch);
    const at::Tensor out =
        model.output(schedule.placement.local_stage_index(pass.stage), micro_batches[number], in);
    if (pass.stage + 1 == schedule.placement.stages()) {
      call(number, out);
    } else {
      links.send(parallel::StageMessage::activations, pass.stage, pass.micro_batch, out);
    }
    links.poll();
  }
  links.finish();
}

at::Tensor stage_message_buffer(const Transformer& model, const parallel::Microbatch& batch) {
  const parallel::TensorGroup& tensor = model.tensor();
  const std::int64_t tokens =
      tensor.sequence_parallel() ? batch.length() / tensor.size() : batch.length();
  return at::empty({batch.rows(), tokens, model.config().hidden_size},
                   at::TensorOptions()
                       .dtype(model.registry().dtypes().compute)
                       .device(model.registry().device()));
}

}  // namespace trireme::model
