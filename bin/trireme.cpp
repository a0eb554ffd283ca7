/// trireme: trains, resumes, exports and samples language models. One thin main: parse, build, call, map errors to exit codes.

#include <cstdlib>

#include "bin/commands.hpp"
#include "bin/version.hpp"
#include "config/command_line.hpp"
#include "core/failpoints.hpp"
#include "core/hdf5.hpp"
#include "core/run_main.hpp"

int main(int argc, char** argv) {
  return trireme::run_main("trireme", [&] {
    trireme::hdf5_init();
    trireme::CommandLine line("trireme", "trains language models on Slurm clusters", trireme::version_text);
    const trireme::TrainCommands train(line, &argc, &argv);
    const trireme::CheckpointCommands checkpoint(line);
    const trireme::GenerateCommand generate(line);
    return line.run(argc, argv);
  });
}
