/// trireme: trains, resumes, exports and samples language models.

#include <list>

#include "bin/run_command.hpp"
#include "bin/start_limit.hpp"
#include "bin/trireme/bench_generate_command.hpp"
#include "bin/trireme/bench_step_command.hpp"
#include "bin/trireme/chat/chat_command.hpp"
#include "bin/trireme/checkpoint_commands.hpp"
#include "bin/trireme/config_command.hpp"
#include "bin/trireme/doctor_command.hpp"
#include "bin/trireme/dpo_reference_command.hpp"
#include "bin/trireme/eval_command.hpp"
#include "bin/trireme/generate_command.hpp"
#include "bin/trireme/job_commands.hpp"
#include "bin/trireme/plan/layouts_command.hpp"
#include "bin/trireme/plan/schedule_command.hpp"
#include "bin/trireme/serve_command.hpp"
#include "bin/trireme/short_spin.hpp"
#include "bin/trireme/submit_command.hpp"
#include "bin/trireme/train_command.hpp"
#include "bin/trireme/verify_layout_command.hpp"
#include "bin/version.hpp"
#include "comm/liveness/activity.hpp"
#include "core/files/hdf5.hpp"
#include "core/process/run_main.hpp"
#include "parallel/device.hpp"
#include "parallel/torch_errors.hpp"
#include "train/control/leave_run.hpp"

int main(int argc, char** argv) {
  using namespace trireme;
  forget_short_spin();
  const int code = run_main("trireme", [&] {
    hdf5_init();
    keep_freed_memory();
    CommOptions options;
    options.activity = std::make_shared<Activity>();
    // A trainer makes a world of its own; in the others ranks meet after hours of work, and the
    // slowest one sets the pace.
    if (!TrainCommand::is_chosen(argc, argv)) options.timeout_s = kNoTimeout_s;
    Launch launch("trireme", &argc, &argv, options);
    CommandLine line("trireme", "trains language models on Slurm clusters", version_text);
    std::list<TrainCommand> trainers;
    for (const TaskRow& task : task_rows()) trainers.emplace_back(line, launch, argv[0], task);
    const GenerateCommand generate(line);
    ChatCommand chat(line);
    const ServeCommand serve(line);
    const CheckpointCommands checkpoint(line, [&]() -> Communicator& { return launch.world(); });
    const ConfigCommand config(line);
    const VerifyLayoutCommand verify_layout(line, launch);
    const BenchGenerateCommand bench_generate(line);
    const BenchStepCommand bench_step(line, launch, *options.activity);
    const EvalCommand eval(line, launch);
    const JobCommands job(line);
    const DoctorCommand doctor(line, launch);
    const DpoReferenceCommand dpo_reference(line, launch);
    LayoutsCommand plan(line);
    const ScheduleCommand plan_schedule(line);
    const SubmitCommand submit(line, launch, argv[0]);
    StartLimit limit = start_limit(argc, argv);
    if (TrainCommand::is_chosen(argc, argv)) {
      limit.on_failure = [run = last_option(argc, argv, {"--run"})](const StartFailure& failure) {
        leave_stuck_start(RunFolder{run}, failure);
      };
    }
    return launch.run([&] {
      return with_torch_errors([&] { return run_command(line, launch, limit, argc, argv); });
    });
  });
  end_process(code);
}
