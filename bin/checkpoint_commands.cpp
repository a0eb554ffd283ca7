#include "bin/checkpoint_commands.hpp"

#include <array>

#include "comm/factory.hpp"
#include "core/run_main.hpp"

namespace trireme {
namespace {

struct PlaceCommand {
  const char* name;
  const char* help;
  std::string (*run)(const std::filesystem::path& place);
};

constexpr std::array<PlaceCommand, 4> kPlaceCommands{{
    {"checkpoint list", "checkpoints of a run, newest first", checkpoint_list},
    {"checkpoint verify", "check every byte of a checkpoint or of all in a run", checkpoint_verify},
    {"checkpoint hash", "one hash of all tensors, the same for every layout", checkpoint_hash},
    {"checkpoint inspect", "values, files and tensors of a checkpoint", checkpoint_inspect},
}};

}  // namespace

CheckpointCommands::CheckpointCommands(CommandLine& line) {
  for (const PlaceCommand& command : kPlaceCommands) {
    line.command(command.name, command.help)
        .positional("DIR", &place_, "checkpoint, folder of checkpoints, or run folder")
        .example(cat("trireme ", command.name, " runs/first"))
        .run([this, &command] {
          print(command.run(place_));
          return kExitDone;
        });
  }
  line.command("export", "write a Hugging Face model folder from a checkpoint")
      .option(
          "--checkpoint", &export_.checkpoint, "DIR", "checkpoint or run folder", Need::required)
      .option("--output", &export_.output, "DIR", "folder to write; must not exist", Need::required)
      .option("--dtype", &export_.dtype, "TYPE", "of the weights: f32 (exact), bf16 or f16")
      .example("trireme export --checkpoint runs/first --output hf/first")
      .run([this] {
        print(export_command(export_));
        return kExitDone;
      });
  line.command("import", "make a checkpoint from a Hugging Face model folder")
      .option("--hf",
              &import_.hf,
              "DIR",
              "folder with config.json and safetensors (Qwen3 or Llama shape)",
              Need::required)
      .option("--output", &import_.output, "DIR", "run folder to write", Need::required)
      .example("trireme import --hf hf/first --output runs/imported")
      .run([this] {
        const auto world = make_world("self", {});
        print(import_command(import_, *world));
        return kExitDone;
      });
}

}  // namespace trireme
