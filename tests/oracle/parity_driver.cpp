// usage: parity_driver train --data DIR --out DIR [--ranks N] [--batches-only]
//                            [--section.key value ...]
//
// Runs train.steps updates of the real Step, on thread ranks that each have a part of the model.
// Writes to --out everything that another implementation needs to do the same, as whole tensors:
//   initial.safetensors, final.safetensors   master weights
//   grads.safetensors                        master gradients of step 1, after the clip
//   batches.safetensors                      tokens, targets, positions
//                                            [steps, micro-batches, B, T] i64;
//                                            segment_bounds i32 of all micro-batches, concatenated;
//                                            bounds_begin [steps * micro-batches + 1] i64
//   run.json                                 resolved model, optim and train values; loss,
//                                            grad_norm, lr of each step
//
// With --batches-only nothing is trained: writes initial weights, batches and run.json without
// steps.
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/exchange/safetensors.hpp"
#include "comm/scalars.hpp"
#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"
#include "config/command_line.hpp"
#include "core/by_name.hpp"
#include "core/fields.hpp"
#include "core/files/file.hpp"
#include "core/files/hdf5.hpp"
#include "core/files/json.hpp"
#include "core/process/run_main.hpp"
#include "data/loader.hpp"
#include "device/device.hpp"
#include "device/torch_bridge.hpp"
#include "objective/cross_entropy.hpp"
#include "optim/grad_norm.hpp"
#include "optim/schedule.hpp"
#include "parallel/units/gathered.hpp"
#include "train/start/run_keys.hpp"
#include "train/step/step.hpp"

namespace trireme {
namespace {

template <class Config>
Json values_of(const char* section, Config& config) {
  Json json = Json::object();
  for (const Field& field : fields_of(section, config)) {
    const std::string name = field.key.substr(field.key.find('.') + 1);
    std::visit([&](const auto* value) { json[name] = *value; }, field.value);
  }
  return json;
}

checkpoint::SafetensorsSource source(const std::string& name, const at::Tensor& tensor) {
  const at::Tensor whole = tensor.detach().contiguous();
  return {name, device::to_dtype(whole.scalar_type()), whole.sizes().vec(),
          [whole](std::span<std::byte> bytes) {
            std::memcpy(bytes.data(), whole.const_data_ptr(), bytes.size());
          }};
}

/// Returns the values of all parameters, gathered.
void write_parameters(const std::filesystem::path& path, const parallel::ParamRegistry& registry,
                      const at::Tensor& all) {
  std::vector<checkpoint::SafetensorsSource> sources;
  for (const parallel::GatheredParam& param : parallel::gathered_params(registry)) {
    sources.push_back(
        source(param.name,
               param.of(all).view(registry.spec(sources.size()).shape).to(registry.dtypes().main)));
  }
  comm::SelfCommunicator alone;
  checkpoint::write_safetensors(path, sources, alone);
}

/// Returns every batch of a run in order.
class BatchLog {
 public:
  void add(const data::Batch& batch) {
    const auto append = [](auto& to, const auto& from) {
      to.insert(to.end(), from.begin(), from.end());
    };
    append(tokens_, batch.tokens);
    append(targets_, batch.targets);
    append(positions_, batch.positions);
    append(bounds_, batch.segment_bounds);
    bounds_begin_.push_back(static_cast<std::int64_t>(bounds_.size()));
  }

  void write(const std::filesystem::path& path, const std::vector<std::int64_t>& shape) const {
    comm::SelfCommunicator alone;
    checkpoint::write_safetensors(path,
                                  std::vector<checkpoint::SafetensorsSource>{
                                      source("tokens", at::tensor(tokens_).view(shape)),
                                      source("targets", at::tensor(targets_).view(shape)),
                                      source("positions", at::tensor(positions_).view(shape)),
                                      source("segment_bounds", at::tensor(bounds_)),
                                      source("bounds_begin", at::tensor(bounds_begin_))},
                                  alone);
  }

 private:
  std::vector<std::int64_t> tokens_, targets_, positions_;
  std::vector<std::int32_t> bounds_;
  std::vector<std::int64_t> bounds_begin_{0};
};

using Updates = std::vector<std::vector<data::Batch>>;

struct Driver {
  train::RunConfig config;
  std::string out;
  std::int64_t ranks = 1;
  bool batches_only = false;

  /// Returns the micro-batches of all steps. Every rank reads the same ones (dp is 1).
  Updates read_updates() {
    const data::TokenSet set = data::TokenSet::open(config.data.path);
    if (config.train.seq_len == 0) config.train.seq_len = set.seq_len();
    model::resolve(config.model, static_cast<std::int64_t>(set.vocab_size()));
    const data::SampleSet samples(set, config.train.seq_len);
    const train::TrainConfig& train = config.train;
    const data::SampleStream stream(samples, {.seed = static_cast<std::uint64_t>(train.seed)});
    data::DataLoader loader(stream,
                            {.micro_batch = train.micro_batch, .global_batch = train.global_batch});
    Updates updates(static_cast<std::size_t>(train.steps));
    for (std::vector<data::Batch>& batches : updates) {
      for (std::int64_t i = 0; i < loader.micro_steps(); ++i) batches.push_back(loader.next());
      const std::int64_t targets = loader.next_num_targets();  // there is only one data rank
      for (data::Batch& batch : batches) batch.update_targets = targets;
    }
    return updates;
  }

  Json update(train::Step& step, const parallel::Mesh& mesh, std::span<const data::Batch> batches,
              std::int64_t number) const {
    const double lr = optim::learning_rate(config.optim, number, config.train.steps);
    const std::int64_t targets = batches.front().update_targets;
    const train::UpdateResult result = step.run(batches, targets, number, number, lr);
    const double loss_sum = comm::all_reduce_value(mesh.group(parallel::Axis::data),
                                                   result.loss_sum, comm::ReduceOp::sum, "loss");
    return {{"loss", loss_sum / static_cast<double>(targets)},
            {"grad_norm", result.grad_norm},
            {"lr", lr}};
  }

  /// Trains, and writes weights and gradients. Returns the values of each step.
  Json train_on(comm::Communicator& world, const Updates& updates) const {
    const train::TrainConfig& train = config.train;
    const ops::Path path = train.fused_ops ? ops::Path::fast : ops::Path::plain;
    const parallel::Mesh mesh(world, config.parallel);
    if (mesh.size(parallel::Axis::dp) != 1)
      fail(ErrorKind::usage, "--ranks {} leaves {} ranks of dp, must be 1", ranks,
           mesh.size(parallel::Axis::dp));
    parallel::ParamRegistry registry;
    model::Transformer transformer(
        registry, config.model,
        {.path = path,
         .recompute =
             by_name<parallel::Recompute>(parallel::kRecomputes, config.parallel.recompute),
         .seed = static_cast<std::uint64_t>(train.seed),
         .tensor = {mesh.group(parallel::Axis::tp), config.parallel.sequence_parallel},
         .context = parallel::context_group(mesh)});
    registry.allocate(mesh, device::precision_dtypes(train.precision), at::kCPU);
    transformer.prepare();
    registry.initialize(static_cast<std::uint64_t>(train.seed));
    const std::unique_ptr<optim::Optimizer> optimizer =
        optim::make_optimizer(config.optim, registry, train.steps);
    optim::LossScaler scaler(train.precision == "fp16");
    objective::CrossEntropy objective(registry, transformer.head_weight(), path,
                                      transformer.tensor());
    Measures measures;
    train::Step step({transformer, objective, *optimizer, scaler, mesh, measures},
                     config.optim.clip_norm);

    const auto write = [&](const char* name, const at::Tensor& all) {
      if (world.rank() != 0) return;
      const std::filesystem::path folder = out;
      write_parameters(folder / formatted("{}.safetensors", name), registry, all);
    };
    write("initial", parallel::gathered_weights(registry, world));
    Json steps = Json::array();
    if (batches_only) return steps;
    for (const std::vector<data::Batch>& batches : updates) {
      steps.push_back(update(step, mesh, batches, static_cast<std::int64_t>(steps.size()) + 1));
      if (steps.size() > 1) continue;
      const double norm = steps.front().at("grad_norm");
      const double factor =
          step.updates_in_one_pass() ? optim::clip_factor(norm, config.optim.clip_norm) : 1;
      write("grads", parallel::gathered_grads(registry, world).mul(factor));
    }
    write("final", parallel::gathered_weights(registry, world));
    return steps;
  }

  int run() {
    const std::filesystem::path folder = out;
    std::filesystem::create_directories(folder);
    device::set_cpu_threads(config.train.threads, 1);
    const Updates updates = read_updates();
    BatchLog log;
    for (const std::vector<data::Batch>& batches : updates)
      for (const data::Batch& batch : batches) log.add(batch);
    Json report{{"model", values_of("model", config.model)},
                {"optim", values_of("optim", config.optim)},
                {"train", values_of("train", config.train)}};
    comm::run_ranks(static_cast<int>(ranks), [&](comm::Communicator& world) {
      const Json steps = train_on(world, updates);
      if (world.rank() == 0 && !batches_only) report["steps"] = steps;
    });
    log.write(folder / "batches.safetensors",
              {config.train.steps, static_cast<std::int64_t>(updates.front().size()),
               config.train.micro_batch, config.train.seq_len});
    write_file_atomic(folder / "run.json", report.dump(1));
    return kExitDone;
  }
};

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  return run_main("parity_driver", [&] {
    hdf5_init();
    Driver driver;
    const std::unique_ptr<config::ConfigSet> keys = train::make_run_keys(driver.config);
    config::CommandLine line("parity_driver", "replays training for tests/oracle/parity.py",
                             [] { return std::string("test program"); });
    line.command("train", "run updates and leave weights, batches and losses")
        .option("--out", &driver.out, "DIR", "folder to write", config::Need::required)
        .option("--ranks", &driver.ranks, "N", "thread ranks: parallel.tp x parallel.cp")
        .flag("--batches-only", driver.batches_only,
              "write initial weights and batches, train nothing")
        .config(*keys, [&](config::ConfigSet& set) { train::finish_run_keys(driver.config, set); })
        .alias("--data", "data.path")
        .run([&] { return driver.run(); });
    return line.run(argc, argv);
  });
}
