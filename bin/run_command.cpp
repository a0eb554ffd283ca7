#include "bin/run_command.hpp"

#include "comm/agree.hpp"
#include "core/process/failpoints.hpp"

namespace trireme {

int run_command(const CommandLine& line, const Launch& launch, int argc, char** argv) {
  const LaunchInfo& info = launch.info();
  std::function<int()> work = [] { return kExitDone; };
  all_or_none(launch.world(), [&] {
    failpoints_init(info.rank);
    const bool on_all = line.ranks(argc, argv) == Ranks::all;
    if (!on_all && info.rank != 0) return;
    line.check_ranks(argc, argv, info.size);
    work = line.parse(argc, argv);
  });
  return work();
}

}  // namespace trireme
