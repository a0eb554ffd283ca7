/// trireme: trains, resumes, exports and samples language models.

#include "bin/checkpoint_commands.hpp"
#include "bin/config_command.hpp"
#include "bin/generate_command.hpp"
#include "bin/pretrain_command.hpp"
#include "bin/version.hpp"
#include "comm/session.hpp"
#include "core/hdf5.hpp"
#include "core/run_main.hpp"
#include "parallel/torch_errors.hpp"

namespace trireme {
namespace {

/// All commands but training are the work of one process: under mpirun or srun the first rank does
/// it.
int run_on_first_rank(CommandLine& line, int argc, char** argv) {
  const auto body = [&] { return with_torch_errors([&] { return line.run(argc, argv); }); };
  if (!started_by_launcher()) return body();
  const Session session(&argc, &argv);
  if (session.launch().rank != 0) return kExitDone;
  const int code = run_main("trireme", body);
  if (code != kExitDone && session.launch().size > 1) abort_job(code);
  return code;
}

}  // namespace
}  // namespace trireme

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
    return trireme::run_on_first_rank(line, argc, argv);
  });
}
