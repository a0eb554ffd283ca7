/// Models of other programs: export and import.

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
  line.command("export", "write a Hugging Face model folder from a checkpoint")
      .option("--checkpoint", &settings->checkpoint, "MODEL", kModelPlaceHelp, Need::required)
      .option("--output", &settings->output, "DIR", "folder to write; must not exist",
              Need::required)
      .option("--dtype", &settings->dtype, "f32|bf16|f16", "of the weights; f32 is exact")
      .flag("--adapter", settings->adapter,
            "of a LoRA run: the adapters alone, as a folder for Hugging Face peft; without it they "
            "are added to the weights")
      .option("--base", &settings->base, "MODEL",
              "of a LoRA run: what its adapters were trained on; else the run's own `base`")
      .option("--base-name", &settings->base_name, "NAME",
              "with --adapter: base_model_name_or_path, the Hugging Face folder or hub name of the "
              "base; default: the Hugging Face folder that the run or --base names, else RUN/base")
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
               "make a checkpoint from Hugging Face folders (models, adapters) or MiniMind weights")
      .option("--hf", &import.hf, "DIR",
              "folder with config.json and safetensors (Qwen3, Qwen3 MoE, Llama or Mistral)")
      .option("--peft", &import.peft, "DIR", "folder of adapters, as peft writes it (LoRA)")
      .option(
          "--base", &import.base, "MODEL",
          "with --peft: the model that the adapters were trained on (a checkpoint, run or Hugging "
          "Face folder)")
      .option("--minimind", &import.minimind, "FILE",
              "weights of MiniMind's trainers (V1, V2, V2.1 and later), .pth or .safetensors; "
              "their shape is --model.preset, or --model.hidden_size and so on")
      .option("--tokenizer", &import.tokenizer, "DIR",
              "with --minimind: folder of its tokenizer, kept with the weights")
      .flag("--require-tokenizer", import.require_tokenizer,
            "with --hf or --minimind: refuse a model whose tokenizer is absent or cannot be read "
            "(exit code 3); without it, a warning")
      .option("--output", &import.output, "DIR", "run folder to write", Need::required)
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
