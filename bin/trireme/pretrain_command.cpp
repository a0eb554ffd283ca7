#include "bin/trireme/pretrain_command.hpp"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "comm/agree.hpp"
#include "comm/factory.hpp"
#include "comm/liveness/heartbeat.hpp"
#include "comm/liveness/watchdog_stacks.hpp"
#include "comm/nccl/nccl_backend.hpp"
#include "comm/session.hpp"
#include "core/log.hpp"
#include "core/process/failpoints.hpp"
#include "core/process/run_main.hpp"
#include "core/process/stop_signals.hpp"
#include "train/control/leave_run.hpp"
#include "train/run/run_keys.hpp"
#include "train/run/training_run.hpp"

namespace trireme {
namespace {

constexpr double kHeartbeatFirst_s = 10;

std::string scheduler_job() {
  const char* job = std::getenv("SLURM_JOB_ID");
  return job == nullptr ? "" : job;
}

}  // namespace

PretrainCommand::PretrainCommand(CommandLine& line) : keys_(make_run_keys(config_)) {
  line.command("pretrain", "train a model on a token set")
      .option("--run", &run_, "DIR",
              "run folder: configuration, metrics, checkpoints; made, or resumed", Need::required)
      .option("--init", &init_, "CHECKPOINT",
              "start from the weights alone of a checkpoint, or of a run's newest, at step 0: "
              "--resume CHECKPOINT --checkpoint.start weights")
      .config(*keys_, [this](ConfigSet& keys) { complete(keys); })
      .alias("--data", "data.path")
      .alias("--resume", "checkpoint.resume")
      .example(
          "trireme pretrain --data sets/train --run runs/first --model.preset tiny --train.steps "
          "200")
      .example("trireme pretrain --run runs/first")
      .example(
          "trireme pretrain --resume runs/first/checkpoints/step-000000100 --run runs/second "
          "--optim.lr 1e-4")
      .example(
          "mpirun -n 2 trireme pretrain --config run.toml --data sets/train --run runs/first "
          "--optim.lr 1e-3")
      .ranks(Ranks::all)
      .run([this] {
        parsed_ = true;
        return kExitDone;
      });
}

PretrainCommand::~PretrainCommand() = default;

bool PretrainCommand::is_chosen(int argc, const char* const* argv) {
  return argc > 1 && std::string_view(argv[1]) == "pretrain";
}

void PretrainCommand::take_init(ConfigSet& keys) const {
  if (init_.empty()) return;
  const std::string& place = init_.back();
  if (init_.size() > 1 || place.empty() || place == "auto" || place == "never")
    fail(ErrorKind::usage, "--init needs one checkpoint, or a run's folder");
  if (keys.origin("checkpoint.resume").starts_with("--"))
    fail(ErrorKind::usage, "--init and --resume both name a checkpoint: give one of them");
  if (keys.origin("checkpoint.start").starts_with("--") && config_.checkpoint.start != "weights")
    fail(ErrorKind::usage, "--init takes weights, but --checkpoint.start is {}",
         config_.checkpoint.start);
  keys.set("checkpoint.resume", place, "--init");
  keys.set("checkpoint.start", "weights", "--init");
}

void PretrainCommand::complete(ConfigSet& keys) {
  take_init(keys);
  if (!run_.empty()) start_ = read_start(config_, keys, RunFolder{run_}, *world_);
  finish_run_keys(config_, keys, start_);
}

int PretrainCommand::run_on_ranks(CommandLine& line, int argc, char** argv) {
  install_stop_signals();  // first: a signal during start-up must not kill a rank
  const Session session(&argc, &argv);
  const std::unique_ptr<Communicator> world = make_world("auto", session.launch());
  bool agreed = false;  // all ranks know that it is over
  const int code = run_main("trireme", [&] {
    try {
      log::init({.rank = world->rank(), .size = world->size()});
      int parse_code = kExitDone;
      world_ = world.get();
      program_ = argv[0];
      all_or_none(*world, [&] {
        failpoints_init(world->rank());
        parse_code = line.run(argc, argv);
      });
      const int result = parsed_ ? execute(*world, session.launch()) : parse_code;
      agreed = true;
      return result;
    } catch (const PeerFailed& peer) {
      agreed = true;
      return peer.code();
    } catch (const AgreedError&) {
      agreed = true;
      throw;
    }
  });
  if (!agreed && world->size() > 1) {  // the peers are waiting in a collective
    if (heartbeat_) heartbeat_->announce_failure(code, "an error, see above");
    abort_job(code);
  }
  heartbeat_.reset();
  return code;
}

void PretrainCommand::leave(const PeerLoss& loss, const Activity& activity,
                            const LaunchInfo& launch) const {
  // The step under way is not done; 0: the run folder is not ours yet.
  const std::int64_t step = activity.snapshot().step;
  if (step > 0) leave_run(RunFolder{run_}, launch, loss, step - 1);
  log::flush();
  ::_exit(loss.exit_code);
}

int PretrainCommand::execute(Communicator& world, const LaunchInfo& launch) {
  if (world.rank() == 0) {
    for (const std::string& warning : keys_->warnings()) log::warn(warning);
  }
  CommOptions options;
  options.timeout_s = config_.train.comm_timeout_s;
  options.activity = std::make_shared<Activity>();
  HeartbeatOptions heartbeat;
  heartbeat.silence_s = std::min(heartbeat.silence_s, options.timeout_s);
  heartbeat.hang.most_s = options.timeout_s;
  heartbeat.on_loss = [this, activity = options.activity, &launch](const PeerLoss& loss) {
    leave(loss, *activity, launch);
  };
  // Later than the heartbeat, which knows who is missing and has the stacks written.
  options.timeout_s += kHeartbeatFirst_s;
  const StackRequests stack_requests([this, &launch, activity = options.activity] {
    write_own_stacks(RunFolder{run_}, launch.rank, activity->snapshot().step, "SIGUSR1");
  });
  heartbeat_ = std::make_unique<Heartbeat>(world, launch, options.activity, heartbeat);
  const std::unique_ptr<Communicator> run_world =
      make_world("auto", launch, options);  // its groups report to the heartbeat
  return run_task(kPretrain, config_, *keys_, run_,
                  {launch, *run_world, nccl_backends(), options, scheduler_job(), program_},
                  std::move(start_));
}

}  // namespace trireme
