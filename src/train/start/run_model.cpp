#include "train/start/run_model.hpp"

#include <vector>

#include "checkpoint/format/model_values.hpp"
#include "comm/scalars.hpp"
#include "core/by_name.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "device/device.hpp"
#include "device/kernel_choice.hpp"
#include "model/stages/rank_stages.hpp"
#include "ops/operations.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "train/config/plain_ops.hpp"
#include "train/eval/choices.hpp"
#include "train/report/sinks.hpp"

namespace trireme::train {
namespace {

std::unique_ptr<comm::Communicator> make_device_world(const RunRequest& run, at::Device device) {
  if (!device.is_cuda()) return nullptr;
  comm::CommOptions options = run.ranks.options;
  options.launch_order = parallel::has_launch_order(run.config.parallel);
  return comm::make_world("nccl", run.ranks.launch, options, run.ranks.device_backends);
}

model::TransformerOptions model_options(const RunConfig& config, const parallel::Mesh& mesh) {
  return {ops::path_of(config.train.fused_ops),
          by_name<parallel::Recompute>(parallel::kRecomputes, config.parallel.recompute),
          static_cast<std::uint64_t>(config.train.seed),
          {mesh.group(parallel::Axis::tp), config.parallel.sequence_parallel,
           config.parallel.tp_chunks},
          parallel::context_group(mesh),
          config.lora,
          parallel::ExpertGroup(mesh),
          config.train.fp8_mode()};
}

/// Returns the parallel configuration without options that have no effect on this device.
parallel::ParallelConfig effective_parallel(const RunRequest& run, at::Device device) {
  parallel::ParallelConfig config = run.config.parallel;
  if (device.is_cpu() && config.offload != "none") {
    if (run.ranks.world.rank() == 0)
      log::info("parallel.offload changes nothing on a CPU: everything is in host memory already");
    config.offload = "none";
  }
  return config;
}

parallel::Mesh make_mesh(const RunRequest& run, comm::Communicator& world, at::Device device) {
  const parallel::ParallelConfig config = effective_parallel(run, device);
  std::vector<int> nodes;
  if (config.hierarchical)
    nodes = comm::all_gather_value(run.ranks.world, run.ranks.launch.node, "nodes");
  parallel::Mesh mesh(world, config, nodes);
  if (config.hierarchical && mesh.node_levels() == nullptr && world.rank() == 0) {
    log::info(
        "parallel.hierarchical changes nothing: it needs at least two nodes with equally many data ranks, at least two each");
  }
  return mesh;
}

/// Returns this rank's stages of a frozen model: as many stages as the trained model has.
model::ModelStages frozen_stages(const RunConfig& config, const model::ModelConfig& shape,
                                 const parallel::Mesh& mesh) {
  parallel::ParallelConfig parallel = config.parallel;
  if (shape.num_layers != config.model.num_layers) parallel.stages = "auto";
  const int stages = parallel::stage_placement(parallel).stages();
  if (parallel.pp > 1 && stages > shape.num_layers) {
    fail(
        ErrorKind::usage,
        "parallel.pp = {} makes {} stages of schedule {}, must be at most the {} layers of the frozen model: each stage needs at least one layer",
        parallel.pp, stages, parallel.schedule, shape.num_layers);
  }
  return model::rank_stages(shape, parallel, config.train.seq_len, mesh.rank(parallel::Axis::pp));
}

std::unique_ptr<optim::WeightAverage> make_average(double decay,
                                                   parallel::ParamRegistry& registry) {
  return decay > 0 ? std::make_unique<optim::WeightAverage>(registry, decay) : nullptr;
}

std::vector<optim::OptimizerSlot> slots_of(const std::unique_ptr<optim::WeightAverage>& average) {
  if (average == nullptr) return {};
  return {average->slot()};
}

std::unique_ptr<FrozenModel> make_frozen(const RunRequest& run, const RunData& data,
                                         const std::optional<FrozenWeights>& kept,
                                         const parallel::Mesh& mesh, at::Device device) {
  if (!kept) return nullptr;
  const RunConfig& config = run.config;
  model::ModelConfig shape = checkpoint::model_from_values(kept->checkpoint.manifest().values,
                                                           kept->checkpoint.path().string());
  // The limit selects the factors of longrope. A copy of the start model needs those of the trained
  // model, another model its own.
  const std::int64_t longest = std::max(config.train.seq_len, data.stream().max_seq_len());
  const auto spec = run.task.frozen(config);
  const bool is_start = spec && spec->checkpoint.empty();
  if (!shape.learned_positions())
    shape.max_seq_len = is_start ? config.model.max_seq_len : std::max(shape.max_seq_len, longest);
  if (longest > shape.max_seq_len) {
    fail(
        ErrorKind::usage,
        "the longest sequence of train.seq_len and data.path has {} tokens. It must have at most {}: the frozen model has learned positions, and model.max_seq_len = {}",
        longest, shape.max_seq_len, shape.max_seq_len);
  }
  model::TransformerOptions options = model_options(config, mesh);
  options.lora = {};
  options.fp8 = model::Fp8Mode::off;
  return std::make_unique<FrozenModel>(shape, frozen_stages(config, shape, mesh), options, mesh,
                                       device::precision_dtypes(config.train.precision).compute,
                                       device);
}

std::unique_ptr<Critic> make_critic(const RunRequest& run, const parallel::Mesh& mesh,
                                    at::Device device) {
  const auto spec = run.task.critic();
  if (!spec) return nullptr;
  const RunConfig& config = run.config;
  model::TransformerOptions options = model_options(config, mesh);
  options.lora = {};
  options.fp8 = model::Fp8Mode::off;
  const auto stages = model::rank_stages(config.model, config.parallel, config.train.seq_len,
                                         mesh.rank(parallel::Axis::pp));
  return std::make_unique<Critic>(Critic::Setup{config.model, stages, options, config.optim, mesh,
                                                device::precision_dtypes(config.train.precision),
                                                device, spec->value, spec->lr, config.train.steps});
}

/// Returns the number of text bytes of each class [vocab_size] int64, with the tokenizer of the
/// training data.
at::Tensor token_bytes(const RunData& data, std::int64_t vocab_size, at::Device device) {
  std::vector<std::int64_t> bytes = bytes_of_tokens(text::Tokenizer::from_files(
      data.tokenizer_files(), data.stream().first_set().directory().string()));
  bytes.resize(static_cast<std::size_t>(vocab_size), 0);  // a model may have more classes
  return at::tensor(bytes, at::TensorOptions().dtype(at::kLong)).to(device);
}

}  // namespace

RunModel::RunModel(const RunRequest& run, const RunData& data, const FrozenStart& frozen_start,
                   at::Device device, Measures& measures)
    : device_world(make_device_world(run, device)),
      mesh(make_mesh(run, device_world ? *device_world : run.ranks.world, device)),
      transformer(registry, run.config.model,
                  model::rank_stages(run.config.model, run.config.parallel,
                                     run.config.train.seq_len, mesh.rank(parallel::Axis::pp)),
                  model_options(run.config, mesh)),
      frozen(make_frozen(run, data, frozen_start.model, mesh, device)),
      critic(make_critic(run, mesh, device)),
      objective(run.task.make_objective({run.config, transformer, frozen.get(), mesh,
                                         data.sample_sets(), frozen_start.init_sha256, measures})),
      samples(run.task.make_source({run.config, data.stream(), data.validation(), transformer, mesh,
                                    run.ranks.world, frozen.get(), critic.get(), measures,
                                    run.folder.root, device})),
      optimizer(
          (registry.allocate(mesh, device::precision_dtypes(run.config.train.precision), device),
           transformer.prepare(),
           optim::make_optimizer(run.config.optim, registry, run.config.train.steps))),
      average(make_average(run.config.train.ema_decay, registry)),
      scaler(run.config.train.precision == "fp16"),
      step(
          {transformer, *objective, *optimizer, scaler, mesh, measures, average.get(),
           run.config.metrics.layer_norms,
           is_sink_on(run.config.metrics, "tensorboard") || is_sink_on(run.config.metrics, "wandb"),
           GraphUse{.mode = run.config.train.cuda_graph}},
          run.config.optim.clip_norm),
      state(registry, *optimizer, run.config.lora.on() ? StateOf::trained : StateOf::all,
            slots_of(average)) {
  if (run.config.train.eval_every > 0)
    counts_text = objective->count_text(token_bytes(data, run.config.model.vocab_size, device));
}

std::vector<checkpoint::StateTensor> RunModel::saved_tensors() const {
  std::vector<checkpoint::StateTensor> tensors = state.tensors();
  if (critic == nullptr) return tensors;
  const std::vector<checkpoint::StateTensor> more = critic->saved_tensors();
  tensors.insert(tensors.end(), more.begin(), more.end());
  return tensors;
}

void RunModel::stage() {
  state.stage();
  if (critic != nullptr) critic->state().stage();
}

std::size_t RunModel::state_bytes() const {
  std::size_t bytes = 0;
  for (const checkpoint::StateTensor& tensor : saved_tensors())
    bytes += tensor.owner ? tensor.bytes.size() : 0;
  return bytes;
}

std::string RunModel::layout(const RunRequest& run) const {
  std::string text =
      formatted("ranks {}, micro_batch {}", run.ranks.world.size(), run.config.train.micro_batch);
  for (const parallel::Axis axis :
       {parallel::Axis::tp, parallel::Axis::cp, parallel::Axis::dp, parallel::Axis::pp})
    text +=
        formatted(", {} {}", parallel::kAxisNames[static_cast<std::size_t>(axis)], mesh.size(axis));
  if (mesh.has_expert_grid())
    text +=
        formatted(", etp {}, ep {}", mesh.size(parallel::Axis::etp), mesh.size(parallel::Axis::ep));
  if (mesh.size(parallel::Axis::pp) > 1)
    text += formatted(", schedule {}, stages {}", run.config.parallel.schedule,
                      text_of(model::model_stages(run.config.model, run.config.parallel,
                                                  run.config.train.seq_len)));
  return text;
}

std::unique_ptr<RunModel> build_model(const RunRequest& run, const RunData& data,
                                      const FrozenStart& frozen_start, Measures& measures) {
  device::set_cpu_threads(run.config.train.threads, run.ranks.launch.local_size);
  const at::Device device =
      device::choose_device(run.config.train.device, run.ranks.launch.local_rank);
  ops::compute_plainly(plain_operations(run.config.train));
  device::use_deterministic_kernels(device, run.config.train.deterministic);
  if (run.config.parallel.reproducible) device::use_thread_independent_products();
  return std::make_unique<RunModel>(run, data, frozen_start, device, measures);
}

}  // namespace trireme::train
