#include "bin/trireme/checkpoint_commands.hpp"

#include <algorithm>
#include <utility>

#include "checkpoint/bench/measure.hpp"
#include "checkpoint/upkeep/model_place.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/process/run_main.hpp"

namespace trireme {
namespace {

constexpr const char* kPlaceHelp = "checkpoint, folder of checkpoints, or run folder";

}  // namespace

CheckpointCommands::CheckpointCommands(CommandLine& line, std::function<Communicator&()> world)
    : world_(std::move(world)), model_keys_(fields_of("model", import_.model)) {
  line.group("checkpoint", "look at the checkpoints of a run, and change them");
  line.group("bench", "measure this machine");
  add_inspection(line);
  add_changes(line);
  add_planning(line);
  add_hugging_face(line);
}

std::function<int()> CheckpointCommands::shared(const SharedWork& work) {
  return [this, work] {
    Communicator& world = world_();
    std::string text;
    all_or_none(world, [&] { text = work(world); });
    if (world.rank() == 0) print(text);
    return kExitDone;
  };
}

void CheckpointCommands::add_inspection(CommandLine& line) {
  line.command("checkpoint list", "checkpoints of a run, newest first")
      .positional("DIR", &place_, kPlaceHelp)
      .example("trireme checkpoint list runs/first")
      .run([this] {
        print(checkpoint_list(place_));
        return kExitDone;
      });
  line.command("checkpoint verify", "check every byte of a checkpoint or of all in a run")
      .positional("DIR", &place_, kPlaceHelp)
      .example("trireme checkpoint verify runs/first")
      .example("mpirun -n 8 trireme checkpoint verify runs/first")
      .ranks(Ranks::all)
      .run(shared([this](Communicator& world) { return checkpoint_verify(place_, world); }));
  line.command("checkpoint hash",
               "SHA-256 of all tensors of a checkpoint, the same for every layout")
      .positional("DIR", &place_, "checkpoint, folder of checkpoints, run or Hugging Face folder")
      .flag("--allow-older", allow_older_, kAllowOlderHelp)
      .example("trireme checkpoint hash runs/first")
      .ranks(Ranks::all)
      .run(shared(
          [this](Communicator& world) { return checkpoint_hash(place_, world, allow_older_); }));
  line.command("checkpoint inspect", "values, files and tensors of a checkpoint")
      .positional("DIR", &place_, kPlaceHelp)
      .flag("--layout", layout_, "its slices instead, as JSON for `checkpoint reshard --layout`")
      .flag("--allow-older", allow_older_, kAllowOlderHelp)
      .example("trireme checkpoint inspect runs/first")
      .run([this] {
        print(checkpoint_inspect(place_, layout_, allow_older_));
        return kExitDone;
      });
  line.command("checkpoint diff",
               "what differs between two checkpoints of any layouts; exit code 3 if anything does")
      .positional("A", &place_, kPlaceHelp)
      .positional("B", &other_, kPlaceHelp)
      .flag("--allow-older", allow_older_, kAllowOlderHelp)
      .example("trireme checkpoint diff runs/first runs/second")
      .run([this] {
        const CheckpointDiff diff = checkpoint_diff(place_, other_, allow_older_);
        print(diff.text);
        return diff.same ? kExitDone : exit_code(ErrorKind::data);
      });
}

void CheckpointCommands::add_changes(CommandLine& line) {
  line.command("checkpoint reshard",
               "write a checkpoint again for another number of ranks or layout")
      .positional("DIR", &reshard_.from, kPlaceHelp)
      .option("--output,-o", &reshard_.output, "DIR", "folder in which the checkpoint appears",
              Need::required)
      .option("--ranks", &reshard_.ranks, "N", "spread over so many ranks by bytes")
      .option("--layout", &reshard_.layout, "FILE",
              "JSON naming each rank's slices (see `checkpoint inspect --layout`)")
      .flag("--allow-older", reshard_.allow_older, kAllowOlderHelp)
      .example("trireme checkpoint reshard runs/first --ranks 4 -o runs/four/checkpoints")
      .ranks(Ranks::all)
      .run(shared([this](Communicator& world) { return checkpoint_reshard(reshard_, world); }));
  line.command("checkpoint prune", "delete old checkpoints of a run that no job is using")
      .positional("DIR", &prune_.place, "run folder, or the folder of its checkpoints")
      .option("--keep-last", &prune_.keep_last, "N", "good ones kept, the newest")
      .option("--keep-every", &prune_.keep_every, "N", "steps divisible by it are kept; 0: none")
      .option("--keep-best", &prune_.keep_best, "N", "kept by lowest validation loss")
      .flag("--dry-run", prune_.dry_run, "only say what would be deleted")
      .example("trireme checkpoint prune runs/first --keep-last 2 --dry-run")
      .run([this] {
        print(checkpoint_prune(prune_));
        return kExitDone;
      });
}

void CheckpointCommands::add_planning(CommandLine& line) {
  line.command("bench checkpoint",
               "speed of saving and loading on this disk, beside raw writes and reads")
      .option("--bytes", &bench_bytes_, "N", "size of the state, which the ranks share")
      .option("--folder", &bench_folder_, "DIR",
              "new folder on the disk in question, removed afterwards")
      .option("--repeats", &bench_repeats_, "N", "how often; medians are shown")
      .flag("--json", json_, "one JSON document on one line instead of a table")
      .example("trireme bench checkpoint --bytes 4000000000 --folder runs/bench --json")
      .example("mpirun -n 2 trireme bench checkpoint --folder runs/bench")
      .ranks(Ranks::all)
      .run(shared([this](Communicator& world) { return bench(world); }));
  line.command("plan-interval",
               "how often to save, from what a save costs and how often the job fails")
      .option("--stall-s", &interval_.stall_s, "S",
              "seconds training waits for one save (`trireme bench checkpoint`)", Need::required)
      .option("--restart-s", &interval_.restart_s, "S",
              "seconds from a failure to the first new step")
      .option("--mtbf-h", &interval_.mtbf_h, "H", "hours between failures of the whole job")
      .option("--devices", &interval_.devices, "N", "or: GPUs (or nodes) of the job")
      .option("--device-mtbf-h", &interval_.device_mtbf_h, "H",
              "hours between failures of one of them")
      .option("--step-time-s", &interval_.step_time_s, "S",
              "seconds of one step, to answer in steps")
      .example("trireme plan-interval --stall-s 0.5 --devices 64 --step-time-s 1.2")
      .run([this] {
        print(plan_interval_text(interval_));
        return kExitDone;
      });
}

std::string CheckpointCommands::bench(Communicator& world) const {
  if (bench_bytes_ < 1) fail(ErrorKind::usage, "--bytes {}, must be at least 1", bench_bytes_);
  const MeasuredCheckpoint measured = measure_checkpoint(
      bench_folder_, {.bytes = static_cast<std::uint64_t>(bench_bytes_), .repeats = bench_repeats_},
      world);
  return json_ ? measured_json(measured) : measured_text(measured);
}

void CheckpointCommands::add_hugging_face(CommandLine& line) {
  line.command("export", "write a Hugging Face model folder from a checkpoint")
      .option("--checkpoint", &export_.checkpoint, "MODEL", kModelPlaceHelp, Need::required)
      .option("--output", &export_.output, "DIR", "folder to write; must not exist", Need::required)
      .option("--dtype", &export_.dtype, "f32|bf16|f16", "of the weights; f32 is exact")
      .flag("--adapter", export_.adapter,
            "of a LoRA run: the adapters alone, as a folder for Hugging Face peft; without it they "
            "are added to the weights")
      .option("--base", &export_.base, "MODEL",
              "of a LoRA run: what its adapters were trained on; else the run's own `base`")
      .option("--base-name", &export_.base_name, "NAME",
              "with --adapter: base_model_name_or_path, the Hugging Face folder or hub name of the "
              "base; default: the Hugging Face folder that the run or --base names, else RUN/base")
      .flag("--allow-older", export_.allow_older, kAllowOlderHelp)
      .example("trireme export --checkpoint runs/first --output hf/first")
      .example(
          "trireme export --checkpoint runs/lora --adapter --base-name hf/first --output peft/lora")
      .ranks(Ranks::all)
      .run(shared([this](Communicator& world) { return export_command(export_, world); }));
  line.command("import",
               "make a checkpoint from Hugging Face folders (models, adapters) or MiniMind weights")
      .option("--hf", &import_.hf, "DIR",
              "folder with config.json and safetensors (Qwen3, Qwen3 MoE, Llama or Mistral)")
      .option("--peft", &import_.peft, "DIR", "folder of adapters, as peft writes it (LoRA)")
      .option(
          "--base", &import_.base, "MODEL",
          "with --peft: the model that the adapters were trained on (a checkpoint, run or Hugging "
          "Face folder)")
      .option("--minimind", &import_.minimind, "FILE",
              "weights of MiniMind's trainers (V1, V2, V2.1 and later), .pth or .safetensors; "
              "their shape is --model.preset, or --model.hidden_size and so on")
      .option("--tokenizer", &import_.tokenizer, "DIR",
              "with --minimind: folder of its tokenizer, kept with the weights")
      .flag("--require-tokenizer", import_.require_tokenizer,
            "with --hf or --minimind: refuse a model whose tokenizer is absent or cannot be read "
            "(exit code 3); without it, a warning")
      .option("--output", &import_.output, "DIR", "run folder to write", Need::required)
      .config(model_keys_, [this](ConfigSet& keys) { complete_model(keys); })
      .example("trireme import --hf hf/first --output runs/imported")
      .example("trireme import --peft peft/lora --base runs/first --output runs/adapted")
      .example(
          "trireme import --minimind pretrain_512.pth --model.preset minimind-2-small "
          "--output runs/old")
      .run([this] {
        print(import_command(import_));
        return kExitDone;
      });
}

void CheckpointCommands::complete_model(ConfigSet& keys) {
  ModelConfig& model = import_.model;
  if (import_.minimind.empty()) return;
  const std::vector<std::string> known = model_preset_names();
  if (std::find(known.begin(), known.end(), model.preset) != known.end()) {
    ModelConfig preset = model_preset(model.preset);
    keys.apply_preset(fields_of("model", preset), formatted("preset {}", model.preset));
  }
  check(model, keys.problems());
}

}  // namespace trireme
