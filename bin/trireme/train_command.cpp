#include "bin/trireme/train_command.hpp"

#include <algorithm>

#include "checkpoint/maintenance/model_path.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "comm/factory.hpp"
#include "comm/liveness/network_settings.hpp"
#include "comm/nccl/nccl_backend.hpp"
#include "core/log.hpp"
#include "core/process/debugger.hpp"
#include "core/progress.hpp"
#include "text/chat/record_forms.hpp"
#include "train/control/launch.hpp"
#include "train/run/run_task.hpp"
#include "train/start/run_keys.hpp"

namespace trireme {
namespace {

void take_init(const TrainSettings& settings, config::ConfigSet& keys) {
  if (settings.init.empty()) return;
  const std::string& place = settings.init.back();
  if (settings.init.size() > 1 || place.empty() || place == "auto" || place == "never")
    fail(ErrorKind::usage, "--init needs one model: {}", checkpoint::kModelPathHelp);
  if (keys.origin("checkpoint.resume").starts_with("--"))
    fail(ErrorKind::usage, "--init and --resume both name a checkpoint. Give only one of them");
  if (keys.origin("checkpoint.start").starts_with("--") &&
      settings.config.checkpoint.start != "weights")
    fail(ErrorKind::usage, "--init loads weights only, but --checkpoint.start is {}",
         settings.config.checkpoint.start);
  keys.set("checkpoint.resume", place, "--init");
  keys.set("checkpoint.start", "weights", "--init");
}

/// Returns true if the task trains on token sets that may hold chats.
bool takes_chats(const train::Task& task) {
  const auto kinds = task.set_kinds();
  return std::any_of(kinds.begin(), kinds.end(), [](std::string_view name) {
    const text::RecordKind* kind = text::find_record_kind(name);
    return kind != nullptr && kind->form.has_value();
  });
}

/// Reads the start of the run and checks all settings, after options, files and environment are
/// read.
void complete(TrainSettings& settings, const comm::Launch& launch, config::ConfigSet& keys) {
  take_init(settings, keys);
  if (settings.allow_other_template)
    keys.set("data.allow_template_change", "true", "--allow-other-template");
  if (settings.allow_missing_markers)
    keys.set("data.allow_missing_markers", "true", "--allow-missing-markers");
  if (!settings.run.empty())
    settings.start =
        train::read_start(settings.config, keys, job::RunDirectory{settings.run}, launch.world());
  train::finish_task_keys(*settings.task, settings.name, settings.config, keys, settings.start);
}

int train_watched(TrainSettings& settings, comm::Launch& launch, const std::string& network) {
  const comm::LaunchInfo& info = launch.info();
  comm::CommOptions options =
      train::comm_options_with_heartbeat(settings.config.train.comm_timeout_s);
  options.shared_memory = parallel::shared_memory_option(settings.config.parallel);
  const job::RunDirectory folder{settings.run};
  const auto event_log = std::make_shared<job::EventLog>(folder.event_log());
  settings.watch = std::make_unique<train::RankWatch>(
      launch.world(), info, folder, event_log, options.activity,
      train::heartbeat_options(settings.config.train.comm_timeout_s), network);
  launch.before_abort([watch = settings.watch.get()](int code) { watch->announce_failure(code); });
  const std::unique_ptr<comm::Communicator> world =
      comm::make_world("auto", info, options);  // its groups report to the heartbeat
  return train::run_task(
      {settings.program,
       settings.name,
       *settings.task,
       settings.config,
       *settings.keys,
       folder,
       std::move(settings.start),
       {info, *world, comm::nccl_backends(), options, job::AttemptId::from_environment()},
       event_log},
      settings.config);
}

int run_training(TrainSettings& settings, comm::Launch& launch) {
  const comm::LaunchInfo& info = launch.info();
  if (info.rank == 0) {
    for (const std::string& warning : settings.keys->warnings()) log::warn(warning);
  }
  if (settings.debugged_rank >= info.size) {
    fail(ErrorKind::usage, "--wait-for-debugger {}: the last rank is {}", settings.debugged_rank,
         info.size - 1);
  }
  if (settings.debugged_rank == info.rank)
    wait_for_debugger(formatted("rank {} on {}", info.rank, info.hostname));
  const std::string network = comm::gather_network_settings(launch.world(), info.hostname);
  try {
    return train_watched(settings, launch, network);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::comm) log::error(train::network_advice(network));
    throw;
  }
}

}  // namespace

bool is_training_command(int argc, const char* const* argv) {
  if (argc < 2) return false;
  const auto rows = train::task_rows();
  return std::any_of(rows.begin(), rows.end(),
                     [&](const train::TaskRow& row) { return row.name == argv[1]; });
}

std::shared_ptr<TrainSettings> add_train_command(config::CommandLine& line, comm::Launch& launch,
                                                 const std::string& program,
                                                 const train::TaskRow& task) {
  const auto settings = std::make_shared<TrainSettings>();
  settings->program = program;
  settings->name = task.name;
  settings->task = task.make();
  settings->keys = train::make_run_keys(settings->config, settings->task->section());
  const std::string command = formatted("trireme {}", task.name);
  const std::string begins = settings->task->needs_start()
                                 ? " --init runs/base --data sets/train --run runs/first"
                                 : " --data sets/train --run runs/first --model.preset tiny";
  config::Command& declared = line.command(std::string(task.name), std::string(task.help));
  declared
      .option("--run", &settings->run, "DIR",
              "run directory for configuration, metrics and checkpoints; created, or resumed if it "
              "exists",
              config::Need::required)
      .option(
          "--init", &settings->init, "MODEL",
          "start at step 0 from the weights of a checkpoint, of the newest checkpoint of a run, or "
          "of a Hugging Face directory; LoRA adapters are merged unless this run trains them "
          "further; same as --resume MODEL --checkpoint.start weights")
      .flag("--allow-other-template", settings->allow_other_template,
            cat(checkpoint::kAllowOtherTemplateHelp, "; same as --data.allow_template_change true"))
      .option("--wait-for-debugger", &settings->debugged_rank, "RANK",
              "rank that waits at the start until a debugger attaches to it; -1: none")
      .option("--progress", &progress_mode(), kProgressModes, kProgressHelp);
  if (takes_chats(*settings->task)) {
    declared.flag("--allow-missing-markers", settings->allow_missing_markers,
                  "train on chats although the tokenizer lacks the markers of their chat format; "
                  "same as --data.allow_missing_markers true");
  }
  declared
      .config(*settings->keys,
              [settings, &launch](config::ConfigSet& keys) { complete(*settings, launch, keys); })
      .alias("--data", "data.path")
      .alias("--resume", "checkpoint.resume")
      .alias("--profile", "train.profile")
      .example(command + begins + " --train.steps 200")
      .example(command + " --run runs/first")
      .example(command +
               " --resume runs/first/checkpoints/step-000000100 --run runs/second --optim.lr 1e-4")
      .example("mpirun -n 2 " + command + " --config run.toml --data sets/train --run runs/first" +
               (settings->task->needs_start() ? " --init runs/base" : ""))
      .ranks(config::Ranks::all)
      .run([settings, &launch] { return run_training(*settings, launch); });
  return settings;
}

}  // namespace trireme
