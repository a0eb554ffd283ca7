/// trireme: trains, resumes, exports and samples language models.

#include <memory>
#include <optional>

#include "bin/trireme/checkpoint_commands.hpp"
#include "bin/trireme/config_command.hpp"
#include "bin/trireme/generate_command.hpp"
#include "bin/trireme/pretrain_command.hpp"
#include "bin/version.hpp"
#include "comm/agree.hpp"
#include "comm/factory.hpp"
#include "comm/session.hpp"
#include "core/files/hdf5.hpp"
#include "core/process/run_main.hpp"
#include "parallel/torch_errors.hpp"

namespace trireme {
namespace {

/// The rest of main for a command of one process: under mpirun or srun the first rank does it.
int run_on_first_rank(const CommandLine& line, int argc, char** argv) {
  const auto body = [&] { return with_torch_errors([&] { return line.run(argc, argv); }); };
  if (!started_by_launcher()) return body();
  const Session session(&argc, &argv);
  if (session.launch().rank != 0) return kExitDone;
  const int code = run_main("trireme", body);
  if (code != kExitDone && session.launch().size > 1) abort_job(code);
  return code;
}

/// For a command of all ranks, which asks for `world`: one message and one exit code of them all.
int run_on_all_ranks(const CommandLine& line, std::unique_ptr<Communicator>& world, int argc,
                     char** argv) {
  std::optional<Session> session;
  if (started_by_launcher()) session.emplace(&argc, &argv);
  const LaunchInfo launch = session ? session->launch() : LaunchInfo{};
  world = make_world("auto", launch);
  bool agreed = true;
  const int code = run_main("trireme", [&] {
    try {
      int result = kExitDone;
      all_or_none(*world,
                  [&] { result = with_torch_errors([&] { return line.run(argc, argv); }); });
      return result;
    } catch (const PeerFailed& peer) {
      return peer.code();
    } catch (const AgreedError&) {
      throw;
    } catch (...) {
      agreed = false;
      throw;
    }
  });
  if (!agreed && launch.size > 1) abort_job(code);  // the peers are waiting in a collective
  world.reset();                                    // before MPI ends
  return code;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  return trireme::run_main("trireme", [&] {
    trireme::hdf5_init();
    trireme::CommandLine line("trireme", "trains language models on Slurm clusters",
                              trireme::version_text);
    std::unique_ptr<trireme::Communicator> world;
    trireme::PretrainCommand pretrain(line);
    const trireme::GenerateCommand generate(line);
    const trireme::CheckpointCommands checkpoint(
        line, [&]() -> trireme::Communicator& { return *world; });
    const trireme::ConfigCommand config(line);
    if (line.ranks(argc, argv) == trireme::Ranks::first)
      return trireme::run_on_first_rank(line, argc, argv);
    if (trireme::PretrainCommand::is_chosen(argc, argv))
      return pretrain.run_on_ranks(line, argc, argv);
    return trireme::run_on_all_ranks(line, world, argc, argv);
  });
}
