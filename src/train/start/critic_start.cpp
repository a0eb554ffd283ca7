#include "train/start/critic_start.hpp"

#include "checkpoint/exchange/lora.hpp"
#include "checkpoint/format/model_values.hpp"
#include "comm/agree.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "objective/bradley_terry.hpp"
#include "train/start/weights_start.hpp"

namespace trireme::train {
namespace {

constexpr const char* kCriticWeights = "param/";

/// Throws Error(usage) if a tensor of the critic has another shape in `source`, or none.
void check_shapes(const checkpoint::Checkpoint& source, const std::string& key, Critic& critic) {
  const auto& tensors = source.manifest().tensors;
  for (parallel::ParamId id = 0; id < critic.registry().size(); ++id) {
    const parallel::ParamSpec& spec = critic.registry().spec(id);
    if (spec.name == objective::kRewardHead) continue;
    const auto found = tensors.find(cat(kCriticWeights, spec.name));
    if (found != tensors.end() && found->second.shape == spec.shape) continue;
    fail(ErrorKind::usage,
         "{}: the weights of {} do not fit the policy's {}. Give a model with the architecture of "
         "--init.",
         key, source.path().string(), spec.name);
  }
}

}  // namespace

bool holds_critic(const checkpoint::Checkpoint& checkpoint) {
  const auto& tensors = checkpoint.manifest().tensors;
  const auto first = tensors.lower_bound(kCriticPrefix);
  return first != tensors.end() && first->first.starts_with(kCriticPrefix);
}

void load_critic(const RunRequest& run, const RunData& data,
                 const std::optional<checkpoint::Checkpoint>& start, Critic& critic,
                 const parallel::Mesh& mesh) {
  comm::Communicator& world = run.ranks.world;
  const std::string init = run.task.critic()->init;
  const std::filesystem::path converted = run.folder.root / kConvertedCritic;
  std::optional<checkpoint::Checkpoint> source = start;
  bool is_made = false;
  if (!init.empty()) {
    checkpoint::WholeModel model = comm::all_or_none(
        world, [&] { return checkpoint::open_whole_model(init, converted, world); });
    source = model.checkpoint;
    is_made = model.made;
  }
  if (!source || checkpoint::holds_adapters(*source))
    fail(
        ErrorKind::usage,
        "ppo.critic_init is ''. It must name a whole model, because the run starts from adapters.");
  const std::string key = init.empty() ? "--init" : cat("ppo.critic_init = ", init);
  comm::all_or_none(world, [&] {
    check_shapes(*source, key, critic);
    check_same_tokenizer(*source, data.stream().first_set().manifest().tokenizer_hash);
  });
  critic.registry().initialize(static_cast<std::uint64_t>(run.config.train.seed));
  const auto& saved = source->manifest().tensors;
  checkpoint::StateDict state;
  for (const checkpoint::StateTensor& tensor : critic.state().tensors()) {
    if (tensor.name.starts_with(kCriticWeights) && saved.contains(tensor.name))
      state.tensors.push_back(tensor);
  }
  load_converted(*source, state, world);
  critic.state().spread(mesh);
  critic.registry().refresh_weights();
  comm::on_first_rank(world, [&] {
    if (is_made) remove_tree(converted);
  });
}

}  // namespace trireme::train
