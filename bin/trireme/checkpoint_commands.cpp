#include "bin/trireme/commands.hpp"
#include "checkpoint/upkeep/commands.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/process/run_main.hpp"

namespace trireme {
namespace {

constexpr const char* kPlaceHelp = "checkpoint, directory of checkpoints, or run directory";

/// The options of the commands that read checkpoints.
struct InspectionSettings {
  std::string place;
  std::string other;
  bool layout = false;
  bool allow_older = false;
};

void add_list_and_verify(CommandLine& line, const WorldSource& world) {
  const auto settings = std::make_shared<InspectionSettings>();
  line.command("checkpoint list", "list the checkpoints of a run, newest first")
      .positional("DIR", &settings->place, kPlaceHelp)
      .example("trireme checkpoint list runs/first")
      .run([settings] {
        print(checkpoint_list(settings->place));
        return kExitDone;
      });
  line.command("checkpoint verify",
               "check every byte of one checkpoint or of all checkpoints of a run")
      .positional("DIR", &settings->place, kPlaceHelp)
      .example("trireme checkpoint verify runs/first")
      .example("mpirun -n 8 trireme checkpoint verify runs/first")
      .ranks(Ranks::all)
      .run(print_shared(world, [settings](Communicator& ranks) {
        return checkpoint_verify(settings->place, ranks);
      }));
  line.command("checkpoint hash",
               "print the SHA-256 of all tensors of a checkpoint (independent of the layout)")
      .positional("DIR", &settings->place,
                  "checkpoint, directory of checkpoints, run or Hugging Face directory")
      .flag("--allow-older", settings->allow_older, kAllowOlderHelp)
      .example("trireme checkpoint hash runs/first")
      .ranks(Ranks::all)
      .run(print_shared(world, [settings](Communicator& ranks) {
        return checkpoint_hash(settings->place, ranks, settings->allow_older);
      }));
}

void add_inspect_and_diff(CommandLine& line) {
  const auto settings = std::make_shared<InspectionSettings>();
  line.command("checkpoint inspect", "show the values, files and tensors of a checkpoint")
      .positional("DIR", &settings->place, kPlaceHelp)
      .flag("--layout", settings->layout,
            "print the slices as JSON instead, for `checkpoint reshard --layout`")
      .flag("--allow-older", settings->allow_older, kAllowOlderHelp)
      .example("trireme checkpoint inspect runs/first")
      .run([settings] {
        print(checkpoint_inspect(settings->place, settings->layout, settings->allow_older));
        return kExitDone;
      });
  line.command("checkpoint diff",
               "compare two checkpoints of any layouts; exit code 3 if they differ")
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
               "rewrite a checkpoint for another number of ranks or another layout")
      .positional("DIR", &settings->from, kPlaceHelp)
      .option("--output,-o", &settings->output, "DIR",
              "directory in which the checkpoint is created", Need::required)
      .option("--ranks", &settings->ranks, "N",
              "number of ranks that share the checkpoint by bytes")
      .option("--layout", &settings->layout, "FILE",
              "JSON file with the slices of each rank (see `checkpoint inspect --layout`)")
      .flag("--allow-older", settings->allow_older, kAllowOlderHelp)
      .example("trireme checkpoint reshard runs/first --ranks 4 -o runs/four/checkpoints")
      .ranks(Ranks::all)
      .run(print_shared(
          world, [settings](Communicator& ranks) { return checkpoint_reshard(*settings, ranks); }));
}

void add_prune(CommandLine& line) {
  const auto settings = std::make_shared<PruneCommand>();
  line.command("checkpoint prune", "delete old checkpoints of a run that no job uses")
      .positional("DIR", &settings->place, "run directory, or the directory of its checkpoints")
      .option("--keep-last", &settings->keep_last, "N",
              "number of newest valid checkpoints to keep")
      .option("--keep-every", &settings->keep_every, "N",
              "keep checkpoints of steps divisible by N; 0: none")
      .option("--keep-best", &settings->keep_best, "N",
              "number of checkpoints with the lowest validation loss to keep")
      .flag("--dry-run", settings->dry_run, "only print what would be deleted")
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
  line.group("checkpoint", "inspect and manage the checkpoints of a run");
  add_list_and_verify(line, world);
  add_inspect_and_diff(line);
  add_reshard(line, world);
  add_prune(line);
}

}  // namespace trireme
