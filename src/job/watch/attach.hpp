#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "job/run_folder.hpp"

namespace trireme {

/// The command that puts gdb on the rank whose stacks begin with `heading` ("== pid 17 on n2, in
/// step 3: ..."), with `arguments` for gdb: through srun beside the job's step, or on this machine
/// where there is no job. Throws Error(internal) for another heading.
std::vector<std::string> attach_words(std::string_view heading, const std::string& job,
                                      const std::vector<std::string>& arguments);

/// The same for a rank of the run's newest leg, which is asked where it is; empty if that leg has
/// ended. Throws as ask_for_stacks(); Error(usage) if there is no such rank, Error(comm) if it does
/// not answer within `wait_s`.
std::vector<std::string> attach_to(const RunFolder& folder, std::int64_t rank, double wait_s,
                                   const std::vector<std::string>& arguments);

}  // namespace trireme
