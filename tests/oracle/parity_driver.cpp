// usage: parity_driver train --data DIR --out DIR [--batches-only] [--section.key value ...]
// Runs train.steps updates of the real Step on one rank and leaves in --out all that another
// implementation needs to do the same:
//   initial.safetensors, final.safetensors   main weights
//   grads.safetensors                        main gradients of step 1, after the clip
//   batches.safetensors                      tokens, targets, positions [steps, micro-steps, B, T]
//   i64; segment_bounds i32, each
//                                            micro-step's list after the other, bounds_begin [steps
//                                            * micro-steps + 1] i64
//   run.json                                 resolved model, optim and train values; loss,
//   grad_norm, lr of each step
// With --batches-only nothing is trained: initial weights, batches and run.json without steps.
#include <cstring>
#include <nlohmann/json.hpp>

#include "checkpoint/hf/safetensors.hpp"
#include "comm/factory.hpp"
#include "comm/self/self_communicator.hpp"
#include "config/command_line.hpp"
#include "core/by_name.hpp"
#include "core/fields.hpp"
#include "core/files/file.hpp"
#include "core/files/hdf5.hpp"
#include "core/files/json.hpp"
#include "core/process/run_main.hpp"
#include "data/loader.hpp"
#include "objective/cross_entropy.hpp"
#include "optim/schedule.hpp"
#include "parallel/device.hpp"
#include "parallel/torch_bridge.hpp"
#include "train/run/run_keys.hpp"
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

SafetensorsSource source(const std::string& name, const at::Tensor& tensor) {
  const at::Tensor whole = tensor.detach().contiguous();
  return {name, to_dtype(whole.scalar_type()), whole.sizes().vec(),
          [whole](std::span<std::byte> bytes) {
            std::memcpy(bytes.data(), whole.const_data_ptr(), bytes.size());
          }};
}

enum class Part { weights, grads };

void write_parameters(const std::filesystem::path& path, ParamRegistry& registry, Part part) {
  std::vector<SafetensorsSource> sources;
  for (ParamId id = 0; id < registry.size(); ++id) {
    sources.push_back(source(registry.spec(id).name,
                             part == Part::weights ? registry.main(id) : registry.main_grad(id)));
  }
  SelfCommunicator alone;
  write_safetensors(path, sources, alone);
}

/// Every batch of a run, one after another.
class BatchLog {
 public:
  void add(const Batch& batch) {
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
    SelfCommunicator alone;
    write_safetensors(
        path,
        std::vector<SafetensorsSource>{source("tokens", at::tensor(tokens_).view(shape)),
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

struct Driver {
  RunConfig config;
  std::string out;
  bool batches_only = false;

  Json update(Step& step, std::span<const Batch> batches, std::int64_t number) const {
    const double lr = learning_rate(config.optim, number, config.train.steps);
    const UpdateResult result =
        step.run(batches, batches.front().update_targets, number, number, lr);
    return {{"loss", result.loss_sum / static_cast<double>(batches.front().update_targets)},
            {"grad_norm", result.grad_norm},
            {"lr", lr}};
  }

  int run() {
    const std::filesystem::path folder = out;
    std::filesystem::create_directories(folder);
    set_cpu_threads(config.train.threads, 1);
    const TokenSet set = TokenSet::open(config.data.path);
    if (config.train.seq_len == 0) config.train.seq_len = set.seq_len();
    resolve(config.model, static_cast<std::int64_t>(set.vocab_size()));
    const SampleSet samples(set, config.train.seq_len);
    const TrainConfig& train = config.train;
    const SampleStream stream(samples, {.seed = static_cast<std::uint64_t>(train.seed)});
    DataLoader loader(stream,
                      {.micro_batch = train.micro_batch, .global_batch = train.global_batch});

    const std::unique_ptr<Communicator> world = make_world("self", {});
    const Mesh mesh(*world, config.parallel);
    ParamRegistry registry;
    Transformer transformer(
        registry, config.model, ModelPart::whole(config.model),
        {.path = train.fused_ops ? ops::Path::fast : ops::Path::plain,
         .recompute = by_name<Recompute>(kRecomputes, config.parallel.recompute),
         .seed = static_cast<std::uint64_t>(train.seed)});
    registry.allocate(mesh, precision_dtypes(train.precision), at::kCPU);
    transformer.prepare();
    registry.initialize(static_cast<std::uint64_t>(train.seed));
    const std::unique_ptr<Optimizer> optimizer = make_optimizer(config.optim, registry);
    LossScaler scaler(train.precision == "fp16");
    CrossEntropy objective(registry, transformer.head_weight(),
                           train.fused_ops ? ops::Path::fast : ops::Path::plain);
    Measures measures;
    Step step({transformer, objective, *optimizer, scaler, mesh, measures}, config.optim.clip_norm);

    write_parameters(folder / "initial.safetensors", registry, Part::weights);
    BatchLog log;
    Json report{{"model", values_of("model", config.model)},
                {"optim", values_of("optim", config.optim)},
                {"train", values_of("train", config.train)}};
    for (std::int64_t number = 1; number <= train.steps; ++number) {
      std::vector<Batch> batches;
      for (std::int64_t i = 0; i < loader.micro_steps(); ++i)
        log.add(batches.emplace_back(loader.next()));
      if (batches_only) continue;
      report["steps"].push_back(update(step, batches, number));
      if (number == 1) write_parameters(folder / "grads.safetensors", registry, Part::grads);
    }
    log.write(folder / "batches.safetensors",
              {train.steps, loader.micro_steps(), train.micro_batch, train.seq_len});
    if (!batches_only) write_parameters(folder / "final.safetensors", registry, Part::weights);
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
    const std::unique_ptr<ConfigSet> keys = make_run_keys(driver.config);
    CommandLine line("parity_driver", "replays training for tests/oracle/parity.py",
                     [] { return std::string("test program"); });
    line.command("train", "run updates and leave weights, batches and losses")
        .option("--out", &driver.out, "DIR", "folder to write", Need::required)
        .flag("--batches-only", driver.batches_only,
              "write initial weights and batches, train nothing")
        .config(*keys, [&](ConfigSet& set) { finish_run_keys(driver.config, set); })
        .alias("--data", "data.path")
        .run([&] { return driver.run(); });
    return line.run(argc, argv);
  });
}
