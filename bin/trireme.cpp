/// trireme: trains, resumes, exports and samples language models.

#include "bin/run_command.hpp"
#include "bin/start_limit.hpp"
#include "bin/trireme/commands.hpp"
#include "bin/trireme/train_command.hpp"
#include "bin/version.hpp"
#include "comm/liveness/activity.hpp"
#include "core/error.hpp"
#include "core/files/hdf5.hpp"
#include "core/process/run_main.hpp"
#include "device/device.hpp"
#include "device/torch_errors.hpp"
#include "ops/cpu/kernels.hpp"
#include "train/control/peer_failure.hpp"

namespace trireme {
namespace {

/// Returns the text of --version: the versions of this program, the compiler and the libraries.
std::string version_text() {
  return formatted(
      "trireme {}\n  compiler  g++ {}\n  LibTorch  {}\n  MPI       {}\n  NCCL      {}\n",
      TRIREME_VERSION, __VERSION__, TRIREME_TORCH_VERSION, TRIREME_MPI_VERSION, TRIREME_NCCL_STATE);
}

/// Returns the JSON object of `--version --json`.
std::string version_line() {
  ProgramParts parts{TRIREME_TORCH_VERSION, TRIREME_NCCL_VERSION, {}};
  for (const ops::kernels::Table* table : ops::kernels::usable_tables())
    parts.cpu_kernels.emplace_back(table->name);
  return version_json("trireme", parts);
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  using namespace trireme;
  forget_short_spin();
  const int code = run_main("trireme", [&] {
    hdf5_init();
    device::keep_freed_memory();
    comm::CommOptions options;
    options.activity = std::make_shared<comm::Activity>();
    // A trainer creates its own communicator with a timeout. In other commands a rank may wait
    // hours for the slowest one.
    if (!is_training_command(argc, argv)) options.timeout_s = comm::kNoTimeout_s;
    comm::Launch launch("trireme", &argc, &argv, options);
    config::CommandLine line("trireme", "trains language models on Slurm clusters", version_text,
                             version_line);
    const WorldSource world = [&]() -> comm::Communicator& { return launch.world(); };
    for (const train::TaskRow& task : train::task_rows())
      add_train_command(line, launch, argv[0], task);
    add_generate_command(line, launch);
    add_chat_command(line);
    add_serve_command(line, launch);
    add_checkpoint_commands(line, world);
    add_config_show_command(line);
    add_verify_layout_command(line, launch);
    add_bench_generate_command(line);
    add_bench_step_command(line, launch, *options.activity);
    add_bench_ladder_command(line, launch);
    add_bench_matmul_command(line);
    add_bench_collectives_command(line, launch);
    add_bench_scaling_command(line, launch, *options.activity);
    add_eval_command(line, launch);
    add_kernels_command(line);
    add_job_commands(line);
    add_doctor_command(line, launch);
    add_dpo_reference_command(line, launch);
    add_plan_command(line);
    add_plan_schedule_command(line);
    add_report_command(line);
    add_submit_command(line, launch, argv[0]);
    comm::StartLimit limit = start_limit(argc, argv);
    if (is_training_command(argc, argv)) {
      limit.on_failure =
          [run = last_option(argc, argv, {"--run"})](const comm::StartFailure& failure) {
            train::record_stuck_start(job::RunDirectory{run}, failure);
          };
    }
    return launch.run([&] {
      return device::with_torch_errors(
          [&] { return run_command(line, launch, limit, argc, argv); });
    });
  });
  end_process(code);
}
