#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/run_folder.hpp"

namespace trireme {

/// What the ranks of a run wrote of where their threads stand.
struct StackReport {
  std::vector<std::string> written;  // files with something new, by rank
  std::int64_t ranks = 0;            // of the newest leg; 0: it has ended
  std::string of_rank;               // what the one that was asked for wrote
};

/// Asks the ranks of the run's newest leg for the stacks of their threads (SIGUSR1: training goes on,
/// and who hangs in a collective answers, too), through the scheduler that started them, else those on
/// this machine; and waits up to `wait_s` for `stacks/` in the run folder. Throws Error(data) where no
/// run is, Error(usage) if nobody could be asked.
StackReport ask_for_stacks(const RunFolder& folder, std::optional<std::int64_t> rank,
                           double wait_s);

/// Returns the command that puts gdb, with `arguments`, on a rank of the run's newest leg, which is
/// asked where it is: through the scheduler beside the job's step, or on this machine where there is no
/// job; empty if that leg has ended. Throws as ask_for_stacks(); Error(usage) if there is no such
/// rank, Error(comm) if it does not answer within `wait_s`.
std::vector<std::string> attach_to(const RunFolder& folder, std::int64_t rank, double wait_s,
                                   const std::vector<std::string>& arguments);

}  // namespace trireme
