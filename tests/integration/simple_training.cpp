// Trains a model in one file:  mpirun -n 2 simple_training SET DIR
#include <iostream>

#include "checkpoint/format/model_values.hpp"
#include "checkpoint/save/save.hpp"
#include "comm/factory.hpp"
#include "comm/scalars.hpp"
#include "core/files/hdf5.hpp"
#include "core/process/run_main.hpp"
#include "data/loader.hpp"
#include "device/device.hpp"
#include "objective/cross_entropy.hpp"
#include "optim/schedule.hpp"
#include "train/state/run_state.hpp"
#include "train/step/step.hpp"
#include "train/step/update_targets.hpp"

int main(int argc, char** argv) {
  using namespace trireme;
  return run_main("simple_training", [&] {
    hdf5_init();
    if (argc != 3) fail(ErrorKind::usage, "usage: simple_training SET DIR");
    constexpr std::int64_t kSteps = 20;
    constexpr std::uint64_t kSeed = 7;

    // The ranks come from MPI. The mesh assigns them to axes; all other ranks are data parallel.
    const comm::Session session(&argc, &argv);
    const std::unique_ptr<comm::Communicator> world = comm::make_world("auto", session.launch());
    device::set_cpu_threads(0, session.launch().local_size);
    const parallel::Mesh mesh(*world, {});
    comm::Communicator& data_group = mesh.group(parallel::Axis::data);

    // Sample i of the run depends only on i and the seed. This rank takes its part of each batch.
    const data::TokenSet set = data::TokenSet::open(argv[1]);
    const data::SampleSet samples(set, set.seq_len());
    const data::SampleStream stream(samples, {.seed = kSeed});
    data::DataLoader loader(stream, {.micro_batch = 2,
                                     .global_batch = 8,
                                     .rank = mesh.rank(parallel::Axis::dp),
                                     .size = mesh.size(parallel::Axis::dp)});
    train::UpdateTargets update_targets(loader, *world, mesh);

    // Every parameter is declared, allocated and set. Its values do not depend on the layout.
    model::ModelConfig config = model::model_preset("tiny");
    model::resolve(config, static_cast<std::int64_t>(set.vocab_size()));
    parallel::ParamRegistry registry;
    model::Transformer model(registry, config, {});
    registry.allocate(mesh, device::precision_dtypes("fp32"), at::kCPU);
    registry.initialize(kSeed);
    model.prepare();

    // The model returns hidden states; the objective owns head and loss.
    objective::CrossEntropy objective(registry, model.head_weight(), ops::Path::fast);
    const optim::OptimConfig optim{.lr = 3e-3};
    const std::unique_ptr<optim::Optimizer> optimizer = optim::make_optimizer(optim, registry);
    optim::LossScaler scaler(/*dynamic=*/false);
    Measures measures;
    train::Step step({model, objective, *optimizer, scaler, mesh, measures}, optim.clip_norm);

    for (std::int64_t number = 1; number <= kSteps; ++number) {
      std::vector<data::Batch> batches;
      for (std::int64_t i = 0; i < loader.micro_steps(); ++i) batches.push_back(loader.next());
      const std::int64_t targets = update_targets.of(batches);  // on all ranks
      const double lr = optim::learning_rate(optim, number, kSteps);

      // Run forward, backward (which sends gradients meanwhile), clip and update.
      const train::UpdateResult result = step.run(batches, targets, number, number, lr);

      const double loss_sum =
          comm::all_reduce_value(data_group, result.loss_sum, comm::ReduceOp::sum, "loss");
      if (world->rank() == 0)
        std::cout << "step " << number << " loss " << loss_sum / static_cast<double>(targets)
                  << std::endl;
    }

    // Each rank writes its shard; one rename publishes the checkpoint.
    train::StateView view(registry, *optimizer);
    view.stage();
    checkpoint::StateDict state{view.tensors(), {}, set.tokenizer_files()};
    checkpoint::put_model_values(config, state.values);
    checkpoint::save_checkpoint(argv[2], kSteps, state, *world, {});
    return kExitDone;
  });
}
