#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "job/run_directory.hpp"

namespace trireme::job {

/// The stack traces that the ranks of a run wrote.
struct StackReport {
  std::vector<std::string> written;  // files with new content, sorted by rank
  std::int64_t ranks = 0;  // number of ranks of the newest attempt; 0: the attempt has ended
  std::string of_rank;     // new stack traces of the requested rank
};

/// Asks the ranks of the newest attempt for the stack traces of their threads, and waits up to
/// `wait_s` seconds for files in `stacks/` of the run directory. Sends SIGUSR1 through the
/// scheduler. If no scheduler started the ranks, sends the signal to the ranks on this machine.
/// Training continues. A rank that hangs in a collective also answers. Throws Error(data) if there
/// is no run, Error(usage) if no rank could be asked.
StackReport ask_for_stacks(const RunDirectory& folder, std::optional<std::int64_t> rank,
                           double wait_s);

/// Returns the command that attaches gdb with `arguments` to a rank of the newest attempt. The
/// command runs inside the job, or on this machine if there is no job. Returns an empty command if
/// the attempt has ended. Throws like ask_for_stacks(), Error(usage) if there is no such rank, and
/// Error(comm) if the rank does not answer within `wait_s` seconds.
std::vector<std::string> attach_to(const RunDirectory& folder, std::int64_t rank, double wait_s,
                                   const std::vector<std::string>& arguments);

}  // namespace trireme::job
