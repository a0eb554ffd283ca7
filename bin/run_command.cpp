#include "bin/run_command.hpp"

#include <algorithm>

#include "comm/agree.hpp"
#include "comm/launchers.hpp"
#include "core/escape.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "core/process/failpoints.hpp"
#include "core/progress.hpp"

namespace trireme {
namespace {

/// Returns the command line that follows the launcher of the scheduler.
std::string command_text(int argc, char** argv) {
  return shell_line(std::vector<std::string>(argv, argv + argc));
}

/// Throws Error(usage) if --progress is not the name of a mode. Ranks other than 0 show nothing.
void check_progress_mode(int rank) {
  const std::vector<std::string> names = progress_mode_names();
  if (std::find(names.begin(), names.end(), progress_mode()) == names.end())
    fail(ErrorKind::usage, "--progress {}, must be one of {}", progress_mode(),
         joined(names, ", "));
  if (rank != 0) progress_mode() = "none";
}

/// Runs a command that takes one rank, or prints help. Rank 0 does the work. If more than one rank
/// was started, every task of a scheduler reports the error, because a script may have started this
/// task alone.
int run_without_ranks(const config::CommandLine& line, comm::Launch& launch, int argc,
                      char** argv) {
  const comm::LaunchInfo place = launch.info();
  failpoints_init(place.rank);
  launch.start_alone();
  if (place.rank == 0 || comm::is_scheduler_task(launch.variables()))
    line.check_ranks(argc, argv, place.size);
  if (place.rank == 0) return line.parse(argc, argv)();
  const std::optional<Error> wrong = comm::capture([&] {
    line.check_ranks(argc, argv, place.size);
    (void)line.parse(argc, argv);
  });
  return wrong ? exit_code(wrong->kind()) : kExitDone;
}

}  // namespace

int run_command(const config::CommandLine& line, comm::Launch& launch,
                const comm::StartLimit& limit, int argc, char** argv) {
  if (line.ranks(argc, argv) == config::Ranks::one)
    return run_without_ranks(line, launch, argc, argv);
  launch.start(limit);
  const comm::LaunchInfo& info = launch.info();
  std::function<int()> work = [] { return kExitDone; };
  comm::all_or_none(launch.world(), [&] {
    failpoints_init(info.rank);
    work = line.parse(argc, argv);
    check_progress_mode(info.rank);
  });
  const std::string idle = comm::idle_tasks_warning(launch.variables(), command_text(argc, argv));
  if (!idle.empty()) log::warn(idle);
  return work();
}

}  // namespace trireme
