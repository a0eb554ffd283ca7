/// Commands that exchange models with other programs: export and import.

#include <algorithm>

#include "bin/trireme/commands.hpp"
#include "checkpoint/upkeep/commands.hpp"
#include "checkpoint/upkeep/model_place.hpp"
#include "config/config_set.hpp"
#include "core/process/run_main.hpp"

namespace trireme {
namespace {

struct ImportSettings {
  ImportCommand import;
  ConfigSet model_keys{fields_of("model", import.model)};
};

void complete_model(ModelConfig& model, ConfigSet& keys) {
  const std::vector<std::string> known = model_preset_names();
  if (std::find(known.begin(), known.end(), model.preset) != known.end()) {
    ModelConfig preset = model_preset(model.preset);
    keys.apply_preset(fields_of("model", preset), formatted("preset {}", model.preset));
  }
  check(model, keys.problems());
}

void add_export(CommandLine& line, const WorldSource& world) {
  const auto settings = std::make_shared<ExportCommand>();
  line.command("export", "export a checkpoint as a Hugging Face model directory")
      .option("--checkpoint", &settings->checkpoint, "MODEL", kModelPlaceHelp, Need::required)
      .option("--output", &settings->output, "DIR", "directory to write; must not exist",
              Need::required)
      .option("--dtype", &settings->dtype, "f32|bf16|f16", "data type of the weights; f32 is exact")
      .flag("--adapter", settings->adapter,
            "for a LoRA run: export only the adapters, for Hugging Face peft; without it they are "
            "merged into the weights")
      .option("--base", &settings->base, "MODEL",
              "for a LoRA run: base model of the adapters; default: `base` of the run directory")
      .option("--base-name", &settings->base_name, "NAME",
              "with --adapter: base_model_name_or_path, the Hugging Face directory or hub name of "
              "the base; default: the directory that the run or --base names, else RUN/base")
      .flag("--allow-older", settings->allow_older, kAllowOlderHelp)
      .example("trireme export --checkpoint runs/first --output hf/first")
      .example(
          "trireme export --checkpoint runs/lora --adapter --base-name hf/first --output peft/lora")
      .ranks(Ranks::all)
      .run(print_shared(
          world, [settings](Communicator& ranks) { return export_command(*settings, ranks); }));
}

void add_import(CommandLine& line) {
  const auto settings = std::make_shared<ImportSettings>();
  ImportCommand& import = settings->import;
  line.command("import",
               "create a checkpoint from a Hugging Face model, a peft adapter or MiniMind weights")
      .option("--hf", &import.hf, "DIR",
              "directory with config.json and safetensors (Qwen3, Qwen3 MoE, Llama or Mistral)")
      .option("--peft", &import.peft, "DIR", "directory of LoRA adapters in the format of peft")
      .option(
          "--base", &import.base, "MODEL",
          "with --peft: base model of the adapters (a checkpoint, run or Hugging Face directory)")
      .option("--minimind", &import.minimind, "FILE",
              "weights of MiniMind's trainers (V1, V2, V2.1 and later), .pth or .safetensors; give "
              "the model shape with --model.preset, or with --model.hidden_size and others")
      .option("--tokenizer", &import.tokenizer, "DIR",
              "with --minimind: directory of its tokenizer, which is stored with the weights")
      .flag(
          "--require-tokenizer", import.require_tokenizer,
          "with --hf or --minimind: fail with exit code 3 if the tokenizer is missing or cannot be "
          "read; without it, print a warning")
      .option("--output", &import.output, "DIR", "run directory to write", Need::required)
      .config(settings->model_keys,
              [&import](ConfigSet& keys) {
                if (!import.minimind.empty()) complete_model(import.model, keys);
              })
      .example("trireme import --hf hf/first --output runs/imported")
      .example("trireme import --peft peft/lora --base runs/first --output runs/adapted")
      .example(
          "trireme import --minimind pretrain_512.pth --model.preset minimind-2-small "
          "--output runs/old")
      .run([settings] {
        print(import_command(settings->import));
        return kExitDone;
      });
}

}  // namespace

void add_exchange_commands(CommandLine& line, const WorldSource& world) {
  add_export(line, world);
  add_import(line);
}

}  // namespace trireme
