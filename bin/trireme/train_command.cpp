#include "bin/trireme/train_command.hpp"

#include <algorithm>

#include "checkpoint/tokenizer/model_template.hpp"
#include "checkpoint/upkeep/model_place.hpp"
#include "comm/factory.hpp"
#include "comm/liveness/network_settings.hpp"
#include "comm/nccl/nccl_backend.hpp"
#include "core/log.hpp"
#include "core/process/debugger.hpp"
#include "data/shards/set_kind.hpp"
#include "train/run/run_keys.hpp"
#include "train/run/run_task.hpp"

namespace trireme {

TrainCommand::TrainCommand(CommandLine& line, Launch& launch, std::string program,
                           const TaskRow& task)
    : launch_(launch),
      program_(std::move(program)),
      name_(task.name),
      task_(task.make()),
      keys_(make_run_keys(config_, task_->section())) {
  const std::string command = formatted("trireme {}", name_);
  const std::string begins = task_->needs_start()
                                 ? " --init runs/base --data sets/train --run runs/first"
                                 : " --data sets/train --run runs/first --model.preset tiny";
  Command& declared = line.command(std::string(name_), std::string(task.help));
  declared
      .option("--run", &run_, "DIR",
              "run folder: configuration, metrics, checkpoints; made, or resumed", Need::required)
      .option(
          "--init", &init_, "MODEL",
          "start at step 0 from the weights alone of a checkpoint, of a run's newest one (LoRA "
          "runs too: their adapters are added to their base, unless this run trains them on), or "
          "of a Hugging Face folder: --resume MODEL --checkpoint.start weights")
      .flag("--allow-other-template", allow_other_template_,
            cat(kAllowOtherTemplateHelp, ": --data.allow_template_change true"))
      .option("--wait-for-debugger", &debugged_rank_, "RANK",
              "this rank waits at the start until a debugger is attached to it (-1: none)");
  if (takes_chats()) {
    declared.flag("--allow-missing-markers", allow_missing_markers_,
                  "train on chats although the tokenizer does not have the markers of their format "
                  "as tokens: --data.allow_missing_markers true");
  }
  declared
      .config(*keys_, [this](ConfigSet& keys) { complete(keys); })
      .alias("--data", "data.path")
      .alias("--resume", "checkpoint.resume")
      .example(command + begins + " --train.steps 200")
      .example(command + " --run runs/first")
      .example(command +
               " --resume runs/first/checkpoints/step-000000100 --run runs/second --optim.lr 1e-4")
      .example("mpirun -n 2 " + command + " --config run.toml" + begins + " --optim.lr 1e-3")
      .ranks(Ranks::all)
      .run([this] { return train(); });
}

bool TrainCommand::is_chosen(int argc, const char* const* argv) {
  if (argc < 2) return false;
  const auto rows = task_rows();
  return std::any_of(rows.begin(), rows.end(),
                     [&](const TaskRow& row) { return row.name == argv[1]; });
}

void TrainCommand::take_init(ConfigSet& keys) const {
  if (init_.empty()) return;
  const std::string& place = init_.back();
  if (init_.size() > 1 || place.empty() || place == "auto" || place == "never")
    fail(ErrorKind::usage, "--init needs one model: a {}", kModelPlaceHelp);
  if (keys.origin("checkpoint.resume").starts_with("--"))
    fail(ErrorKind::usage, "--init and --resume both name a checkpoint: give one of them");
  if (keys.origin("checkpoint.start").starts_with("--") && config_.checkpoint.start != "weights")
    fail(ErrorKind::usage, "--init takes weights, but --checkpoint.start is {}",
         config_.checkpoint.start);
  keys.set("checkpoint.resume", place, "--init");
  keys.set("checkpoint.start", "weights", "--init");
}

bool TrainCommand::takes_chats() const {
  const auto kinds = task_->set_kinds();
  return std::any_of(kinds.begin(), kinds.end(),
                     [](std::string_view kind) { return set_kind(kind).is_masked(); });
}

void TrainCommand::complete(ConfigSet& keys) {
  take_init(keys);
  if (allow_other_template_)
    keys.set("data.allow_template_change", "true", "--allow-other-template");
  if (allow_missing_markers_)
    keys.set("data.allow_missing_markers", "true", "--allow-missing-markers");
  if (!run_.empty()) start_ = read_start(config_, keys, RunFolder{run_}, launch_.world());
  finish_task_keys(*task_, name_, config_, keys, start_);
}

RunPlan TrainCommand::plan(int ranks, bool on_gpu) {
  return plan_run(*task_, config_, *keys_, start_, ranks, on_gpu);
}

int TrainCommand::train() {
  const LaunchInfo& launch = launch_.info();
  if (launch.rank == 0) {
    for (const std::string& warning : keys_->warnings()) log::warn(warning);
  }
  if (debugged_rank_ >= launch.size) {
    fail(ErrorKind::usage, "--wait-for-debugger {}: the last rank is {}", debugged_rank_,
         launch.size - 1);
  }
  if (debugged_rank_ == launch.rank)
    wait_for_debugger(formatted("rank {} on {}", launch.rank, launch.hostname));
  const std::string network = gather_network_settings(launch_.world(), launch.hostname);
  try {
    return train_watched(network);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::comm) log::error(network_advice(network));
    throw;
  }
}

int TrainCommand::train_watched(const std::string& network) {
  const LaunchInfo& launch = launch_.info();
  const CommOptions options = watched_comm(config_.train.comm_timeout_s);
  const RunFolder folder{run_};
  const auto journal = std::make_shared<Journal>(folder.journal());
  watch_ = std::make_unique<RankWatch>(launch_.world(), launch, folder, journal, options.activity,
                                       watch_options(config_.train.comm_timeout_s), network);
  launch_.before_abort([this](int code) { watch_->announce_failure(code); });
  const std::unique_ptr<Communicator> world =
      make_world("auto", launch, options);  // its groups report to the heartbeat
  return run_task({program_,
                   name_,
                   *task_,
                   config_,
                   *keys_,
                   folder,
                   std::move(start_),
                   {launch, *world, nccl_backends(), options, JobPlace::from_environment()},
                   journal},
                  config_);
}

}  // namespace trireme
