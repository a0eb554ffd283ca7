#include <algorithm>

#include "bin/trireme/commands.hpp"
#include "checkpoint/bench/measure.hpp"
#include "checkpoint/hf/hf_family.hpp"
#include "checkpoint/maintenance/average.hpp"
#include "checkpoint/maintenance/commands.hpp"
#include "checkpoint/maintenance/model_path.hpp"
#include "checkpoint/maintenance/plan_interval.hpp"
#include "comm/agree.hpp"
#include "config/config_set.hpp"
#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "core/process/run_main.hpp"
#include "core/progress.hpp"

namespace trireme {
namespace {

constexpr const char* kDirectoryHelp = "checkpoint, directory of checkpoints, or run directory";

/// Returns the body of a command in which all ranks compute one text with `work` and rank 0 prints
/// it. An error on one rank ends all ranks.
std::function<int()> print_shared(const WorldSource& world,
                                  std::function<std::string(comm::Communicator& world)> work) {
  return [world, work = std::move(work)] {
    comm::Communicator& ranks = world();
    std::string text;
    comm::all_or_none(ranks, [&] { text = work(ranks); });
    if (ranks.rank() == 0) print(text);
    return kExitDone;
  };
}

/// The options of the commands that read checkpoints.
struct InspectionSettings {
  std::string directory;
  std::string other;
  bool layout = false;
  bool json = false;
  bool allow_older = false;
};

void add_list_and_verify(config::CommandLine& line, const WorldSource& world) {
  const auto settings = std::make_shared<InspectionSettings>();
  line.command("checkpoint list", "list the checkpoints of a run, newest first")
      .positional("DIR", &settings->directory, kDirectoryHelp)
      .flag("--json", settings->json, "print one JSON object")
      .example("trireme checkpoint list runs/first")
      .run([settings] {
        const auto listed = checkpoint::checkpoint_list(settings->directory);
        print(settings->json ? json_line(checkpoint::list_json(listed))
                             : checkpoint::list_text(listed));
        return kExitDone;
      });
  line.command("checkpoint verify",
               "check every byte of one checkpoint, or of all checkpoints of a run and of its "
               "frozen copies such as RUN/base")
      .positional("DIR", &settings->directory, kDirectoryHelp)
      .option("--progress", &progress_mode(), kProgressModes, kProgressHelp)
      .example("trireme checkpoint verify runs/first")
      .example("mpirun -n 8 trireme checkpoint verify runs/first")
      .ranks(config::Ranks::all)
      .run(print_shared(world, [settings](comm::Communicator& ranks) {
        return checkpoint::checkpoint_verify(settings->directory, ranks);
      }));
  line.command("checkpoint hash",
               "print the SHA-256 of all tensors of a checkpoint (independent of the layout)")
      .positional("DIR", &settings->directory,
                  "checkpoint, directory of checkpoints, run or Hugging Face directory")
      .flag("--allow-older", settings->allow_older, checkpoint::kAllowOlderHelp)
      .option("--progress", &progress_mode(), kProgressModes, kProgressHelp)
      .example("trireme checkpoint hash runs/first")
      .ranks(config::Ranks::all)
      .run(print_shared(world, [settings](comm::Communicator& ranks) {
        return checkpoint::checkpoint_hash(settings->directory, ranks, settings->allow_older);
      }));
}

void add_inspect_and_diff(config::CommandLine& line) {
  const auto settings = std::make_shared<InspectionSettings>();
  line.command("checkpoint inspect", "show the values, files and tensors of a checkpoint")
      .positional("DIR", &settings->directory, kDirectoryHelp)
      .flag("--layout", settings->layout,
            "print the slices as JSON instead, for `checkpoint reshard --layout`")
      .flag("--allow-older", settings->allow_older, checkpoint::kAllowOlderHelp)
      .example("trireme checkpoint inspect runs/first")
      .run([settings] {
        print(checkpoint::checkpoint_inspect(settings->directory, settings->layout,
                                             settings->allow_older));
        return kExitDone;
      });
  line.command("checkpoint diff",
               "compare two checkpoints of any layouts; exit code 3 if they differ")
      .positional("A", &settings->directory, kDirectoryHelp)
      .positional("B", &settings->other, kDirectoryHelp)
      .flag("--allow-older", settings->allow_older, checkpoint::kAllowOlderHelp)
      .example("trireme checkpoint diff runs/first runs/second")
      .run([settings] {
        const checkpoint::CheckpointDiff diff = checkpoint::checkpoint_diff(
            settings->directory, settings->other, settings->allow_older);
        print(diff.text);
        return diff.same ? kExitDone : exit_code(ErrorKind::data);
      });
}

void add_reshard(config::CommandLine& line, const WorldSource& world) {
  const auto settings = std::make_shared<checkpoint::ReshardCommand>();
  line.command("checkpoint reshard",
               "rewrite a checkpoint for another number of ranks or another layout")
      .positional("DIR", &settings->from, kDirectoryHelp)
      .option("--output,-o", &settings->output, "DIR",
              "directory in which the checkpoint is created", config::Need::required)
      .option("--ranks", &settings->ranks, "N",
              "number of ranks that share the checkpoint by bytes")
      .option("--layout", &settings->layout, "FILE",
              "JSON file with the slices of each rank (see `checkpoint inspect --layout`)")
      .flag("--allow-older", settings->allow_older, checkpoint::kAllowOlderHelp)
      .option("--progress", &progress_mode(), kProgressModes, kProgressHelp)
      .example("trireme checkpoint reshard runs/first --ranks 4 -o runs/four/checkpoints")
      .ranks(config::Ranks::all)
      .run(print_shared(world, [settings](comm::Communicator& ranks) {
        return checkpoint::checkpoint_reshard(*settings, ranks);
      }));
}

void add_average(config::CommandLine& line) {
  const auto settings = std::make_shared<checkpoint::AverageCommand>();
  line.command("checkpoint average",
               "write the mean of the weights of several checkpoints of any layouts")
      .positional("DIR", &settings->models, "checkpoints or run directories, two or more")
      .option("--output,-o", &settings->output, "DIR", "run directory to write",
              config::Need::required)
      .option("--weights", &settings->weights, "LIST",
              "weight of each checkpoint, such as 0.5,0.3,0.2; the sum must be 1; default: equal")
      .flag("--ema", settings->ema,
            "average the EMA of the weights (train.ema_decay); one checkpoint is enough")
      .flag("--allow-older", settings->allow_older, checkpoint::kAllowOlderHelp)
      .example("trireme checkpoint average runs/a runs/b --weights 0.3,0.7 -o runs/mean")
      .run([settings] {
        print(checkpoint::checkpoint_average(*settings));
        return kExitDone;
      });
}

void add_prune(config::CommandLine& line) {
  const auto settings = std::make_shared<checkpoint::PruneCommand>();
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
        print(checkpoint::checkpoint_prune(*settings));
        return kExitDone;
      });
}

struct BenchCheckpointSettings {
  std::string folder = "checkpoint-bench";
  std::int64_t bytes = std::int64_t{1} << 30;
  std::int64_t repeats = 5;
  bool json = false;
};

std::string bench_text(const BenchCheckpointSettings& settings, comm::Communicator& world) {
  if (settings.bytes < 1) fail(ErrorKind::usage, "--bytes {}, must be at least 1", settings.bytes);
  const checkpoint::MeasuredCheckpoint measured = checkpoint::measure_checkpoint(
      settings.folder,
      {.bytes = static_cast<std::uint64_t>(settings.bytes), .repeats = settings.repeats}, world);
  return settings.json ? checkpoint::measured_json(measured) : checkpoint::measured_text(measured);
}

void add_bench_and_interval(config::CommandLine& line, const WorldSource& world) {
  const auto settings = std::make_shared<BenchCheckpointSettings>();
  line.group("bench", "measure the speed of this machine");
  line.command("bench checkpoint",
               "measure saving and loading checkpoints, next to raw writes and reads")
      .option("--bytes", &settings->bytes, "N", "size of the state in bytes, which the ranks share")
      .option("--folder", &settings->folder, "DIR",
              "new directory on the disk to measure, removed afterwards")
      .option("--repeats", &settings->repeats, "N", "number of measurements; medians are reported")
      .flag("--json", settings->json, "print one JSON document on one line instead of a table")
      .example("trireme bench checkpoint --bytes 4000000000 --folder runs/bench --json")
      .example("mpirun -n 2 trireme bench checkpoint --folder runs/bench")
      .ranks(config::Ranks::all)
      .run(print_shared(
          world, [settings](comm::Communicator& ranks) { return bench_text(*settings, ranks); }));
  const auto question = std::make_shared<checkpoint::IntervalQuestion>();
  line.command("plan-interval",
               "compute how often to save from the cost of a save and the failure rate")
      .option("--stall-s", &question->stall_s, "S",
              "seconds that training waits for one save (see `trireme bench checkpoint`)",
              config::Need::required)
      .option("--restart-s", &question->restart_s, "S",
              "seconds from a failure to the first new step")
      .option("--mtbf-h", &question->mtbf_h, "H", "hours between failures of the whole job")
      .option("--devices", &question->devices, "N",
              "instead of --mtbf-h: number of GPUs (or nodes) of the job")
      .option("--device-mtbf-h", &question->device_mtbf_h, "H",
              "with --devices: hours between failures of one GPU (or node)")
      .option("--step-time-s", &question->step_time_s, "S",
              "seconds of one step; the result is then also given in steps")
      .example("trireme plan-interval --stall-s 0.5 --devices 64 --step-time-s 1.2")
      .run([question] {
        print(checkpoint::plan_interval_text(*question));
        return kExitDone;
      });
}

struct ImportSettings {
  checkpoint::ImportCommand import;
  config::ConfigSet model_keys{fields_of("model", import.model)};
};

void complete_model(model::ModelConfig& model, config::ConfigSet& keys) {
  const std::vector<std::string> known = model::model_preset_names();
  if (std::find(known.begin(), known.end(), model.preset) != known.end()) {
    model::ModelConfig preset = model::model_preset(model.preset);
    keys.apply_preset(fields_of("model", preset), formatted("preset {}", model.preset));
  }
  check(model, keys.problems());
}

void add_export(config::CommandLine& line, const WorldSource& world) {
  const auto settings = std::make_shared<checkpoint::ExportCommand>();
  line.command("export", "export a checkpoint for transformers, llama.cpp or peft")
      .option("--checkpoint", &settings->checkpoint, "MODEL", checkpoint::kModelPathHelp,
              config::Need::required)
      .option("--output", &settings->output, "DIR", "directory to write; must not exist",
              config::Need::required)
      .option("--dtype", &settings->dtype, "f32|bf16|f16|q8_0",
              "data type of the weights; f32 is exact; q8_0 (8 bits) only with --format gguf")
      .option(
          "--format", &settings->format, checkpoint::export_formats(),
          "hf (a Hugging Face directory), gguf (one file for llama.cpp) or peft (only the adapters "
          "of a LoRA run); hf and gguf merge the adapters of a LoRA run; default: hf")
      .flag("--ema", settings->ema, "export the EMA of the weights (train.ema_decay)")
      .flag("--adapter", settings->adapter, "for a LoRA run: same as --format peft")
      .option("--base", &settings->base, "MODEL",
              "for a LoRA run: base model of the adapters; default: `base` of the run directory")
      .option("--base-name", &settings->base_name, "NAME",
              "with --adapter: base_model_name_or_path, the Hugging Face directory or hub name of "
              "the base; default: the directory that the run or --base names, else RUN/base")
      .flag("--allow-older", settings->allow_older, checkpoint::kAllowOlderHelp)
      .option("--progress", &progress_mode(), kProgressModes, kProgressHelp)
      .example("trireme export --checkpoint runs/first --output hf/first")
      .example("trireme export --checkpoint runs/first --output gguf --format gguf --dtype q8_0")
      .example(
          "trireme export --checkpoint runs/lora --adapter --base-name hf/first --output peft/lora")
      .ranks(config::Ranks::all)
      .run(print_shared(world, [settings](comm::Communicator& ranks) {
        return checkpoint::export_command(*settings, ranks);
      }));
}

void add_import(config::CommandLine& line) {
  const auto settings = std::make_shared<ImportSettings>();
  checkpoint::ImportCommand& import = settings->import;
  line.command("import",
               "create a checkpoint from a Hugging Face model, a peft adapter or MiniMind weights")
      .option("--hf", &import.hf, "DIR",
              cat("directory with safetensors and a config.json with one of these values of "
                  "model_type: ",
                  checkpoint::hf_family_names()))
      .option("--peft", &import.peft, "DIR", "directory of LoRA adapters in the format of peft")
      .option(
          "--base", &import.base, "MODEL",
          "with --peft: base model of the adapters (a checkpoint, run or Hugging Face directory)")
      .option("--minimind", &import.minimind, "FILE",
              "weights of MiniMind's trainers (V1, V2, V2.1 and later), .pth or .safetensors; give "
              "the model shape with --model.preset, or with --model.hidden_size and others")
      .option("--tokenizer", &import.tokenizer, "DIR",
              "with --minimind: directory of its tokenizer, which is stored with the weights")
      .option(
          "--add-tokens", &import.vocab.add_tokens, "FILE",
          "with --hf: add the tokens of this file, one on each line, to the tokenizer; their rows "
          "of the embedding are the mean of all rows with a token")
      .option("--resize-vocab", &import.vocab.num_rows, "N",
              "with --hf: number of rows of the embedding, at least the number of token ids; rows "
              "without a token are the mean of the others; 0: as many as needed")
      .flag(
          "--require-tokenizer", import.require_tokenizer,
          "with --hf or --minimind: fail with exit code 3 if the tokenizer is missing or cannot be "
          "read; without it, print a warning")
      .option("--output", &import.output, "DIR", "run directory to write", config::Need::required)
      .option("--progress", &progress_mode(), kProgressModes, kProgressHelp)
      .config(settings->model_keys,
              [&import](config::ConfigSet& keys) {
                if (!import.minimind.empty()) complete_model(import.model, keys);
              })
      .example("trireme import --hf hf/first --output runs/imported")
      .example("trireme import --hf hf/base --add-tokens tokens.txt --output runs/more-tokens")
      .example("trireme import --peft peft/lora --base runs/first --output runs/adapted")
      .example(
          "trireme import --minimind pretrain_512.pth --model.preset minimind-2-small "
          "--output runs/old")
      .run([settings] {
        print(checkpoint::import_command(settings->import));
        return kExitDone;
      });
}

}  // namespace

void add_checkpoint_commands(config::CommandLine& line, const WorldSource& world) {
  line.group("checkpoint", "inspect and manage the checkpoints of a run");
  add_list_and_verify(line, world);
  add_inspect_and_diff(line);
  add_reshard(line, world);
  add_average(line);
  add_prune(line);
  add_bench_and_interval(line, world);
  add_export(line, world);
  add_import(line);
}

}  // namespace trireme
