#include "bin/trireme/commands.hpp"
#include "checkpoint/upkeep/commands.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/process/run_main.hpp"

namespace trireme {
namespace {

constexpr const char* kPlaceHelp = "checkpoint, folder of checkpoints, or run folder";

/// The options of the commands that look at checkpoints.
struct InspectionSettings {
  std::string place;
  std::string other;
  bool layout = false;
  bool allow_older = false;
};

void add_list_and_verify(CommandLine& line, const WorldSource& world) {
  const auto settings = std::make_shared<InspectionSettings>();
  line.command("checkpoint list", "checkpoints of a run, newest first")
      .positional("DIR", &settings->place, kPlaceHelp)
      .example("trireme checkpoint list runs/first")
      .run([settings] {
        print(checkpoint_list(settings->place));
        return kExitDone;
      });
  line.command("checkpoint verify", "check every byte of a checkpoint or of all in a run")
      .positional("DIR", &settings->place, kPlaceHelp)
      .example("trireme checkpoint verify runs/first")
      .example("mpirun -n 8 trireme checkpoint verify runs/first")
      .ranks(Ranks::all)
      .run(print_shared(world, [settings](Communicator& ranks) {
        return checkpoint_verify(settings->place, ranks);
      }));
  line.command("checkpoint hash",
               "SHA-256 of all tensors of a checkpoint, the same for every layout")
      .positional("DIR", &settings->place,
                  "checkpoint, folder of checkpoints, run or Hugging Face folder")
      .flag("--allow-older", settings->allow_older, kAllowOlderHelp)
      .example("trireme checkpoint hash runs/first")
      .ranks(Ranks::all)
      .run(print_shared(world, [settings](Communicator& ranks) {
        return checkpoint_hash(settings->place, ranks, settings->allow_older);
      }));
}

void add_inspect_and_diff(CommandLine& line) {
  const auto settings = std::make_shared<InspectionSettings>();
  line.command("checkpoint inspect", "values, files and tensors of a checkpoint")
      .positional("DIR", &settings->place, kPlaceHelp)
      .flag("--layout", settings->layout,
            "its slices instead, as JSON for `checkpoint reshard --layout`")
      .flag("--allow-older", settings->allow_older, kAllowOlderHelp)
      .example("trireme checkpoint inspect runs/first")
      .run([settings] {
        print(checkpoint_inspect(settings->place, settings->layout, settings->allow_older));
        return kExitDone;
      });
  line.command("checkpoint diff",
               "what differs between two checkpoints of any layouts; exit code 3 if anything does")
      .positional("A", &settings->place, kPlaceHelp)
      .positional("B", &settings->other, kPlaceHelp)
      .flag("--allow-older", settings->allow_older, kAllowOlderHelp)
      .example("trireme checkpoint diff runs/first runs/second")
      .run([settings] {
        const CheckpointDiff diff =
            checkpoint_diff(settings->place, settings->other, settings->allow_older);
        print(diff.text);
        return diff.same ? kExitDone : exit_code(ErrorKind::data);
      });
}

void add_reshard(CommandLine& line, const WorldSource& world) {
  const auto settings = std::make_shared<ReshardCommand>();
  line.command("checkpoint reshard",
               "write a checkpoint again for another number of ranks or layout")
      .positional("DIR", &settings->from, kPlaceHelp)
      .option("--output,-o", &settings->output, "DIR", "folder in which the checkpoint appears",
              Need::required)
      .option("--ranks", &settings->ranks, "N", "spread over so many ranks by bytes")
      .option("--layout", &settings->layout, "FILE",
              "JSON naming each rank's slices (see `checkpoint inspect --layout`)")
      .flag("--allow-older", settings->allow_older, kAllowOlderHelp)
      .example("trireme checkpoint reshard runs/first --ranks 4 -o runs/four/checkpoints")
      .ranks(Ranks::all)
      .run(print_shared(
          world, [settings](Communicator& ranks) { return checkpoint_reshard(*settings, ranks); }));
}

void add_prune(CommandLine& line) {
  const auto settings = std::make_shared<PruneCommand>();
  line.command("checkpoint prune", "delete old checkpoints of a run that no job is using")
      .positional("DIR", &settings->place, "run folder, or the folder of its checkpoints")
      .option("--keep-last", &settings->keep_last, "N", "good ones kept, the newest")
      .option("--keep-every", &settings->keep_every, "N", "steps divisible by it are kept; 0: none")
      .option("--keep-best", &settings->keep_best, "N", "kept by lowest validation loss")
      .flag("--dry-run", settings->dry_run, "only say what would be deleted")
      .example("trireme checkpoint prune runs/first --keep-last 2 --dry-run")
      .run([settings] {
        print(checkpoint_prune(*settings));
        return kExitDone;
      });
}

}  // namespace

std::function<int()> print_shared(const WorldSource& world,
                                  std::function<std::string(Communicator& world)> work) {
  return [world, work = std::move(work)] {
    Communicator& ranks = world();
    std::string text;
    all_or_none(ranks, [&] { text = work(ranks); });
    if (ranks.rank() == 0) print(text);
    return kExitDone;
  };
}

void add_checkpoint_commands(CommandLine& line, const WorldSource& world) {
  line.group("checkpoint", "look at the checkpoints of a run, and change them");
  add_list_and_verify(line, world);
  add_inspect_and_diff(line);
  add_reshard(line, world);
  add_prune(line);
}

}  // namespace trireme
