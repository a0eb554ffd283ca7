/// trireme: trains, resumes, exports and samples language models.

#include "bin/checkpoint_commands.hpp"
#include "bin/config_command.hpp"
#include "bin/generate_command.hpp"
#include "bin/pretrain_command.hpp"
#include "bin/version.hpp"
#include "core/hdf5.hpp"
#include "core/run_main.hpp"
#include "parallel/torch_errors.hpp"

int main(int argc, char** argv) {
  return trireme::run_main("trireme", [&] {
    trireme::hdf5_init();
    trireme::CommandLine line(
        "trireme", "trains language models on Slurm clusters", trireme::version_text);
    trireme::PretrainCommand pretrain(line);
    const trireme::GenerateCommand generate(line);
    const trireme::CheckpointCommands checkpoint(line);
    const trireme::ConfigCommand config(line);
    if (trireme::PretrainCommand::is_chosen(argc, argv))
      return pretrain.run_on_ranks(line, argc, argv);
    return trireme::with_torch_errors([&] { return line.run(argc, argv); });
  });
}
