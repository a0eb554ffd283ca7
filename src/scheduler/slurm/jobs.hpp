#pragma once
#include <string>
#include <string_view>

#include "scheduler/scheduler.hpp"

namespace trireme {

/// Parses one line of `scontrol -o show job ID`.
SchedulerJob read_slurm_job(std::string_view line);

/// Parses the output of `scontrol -o show job ID`, which exited with `code`.
SchedulerAnswer read_scheduler_answer(int code, std::string_view output);

/// Returns the value of KEY=VALUE in such a line; "" if the key is missing.
std::string word_of(std::string_view line, std::string_view key);

}  // namespace trireme
