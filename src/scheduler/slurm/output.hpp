#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/scheduler.hpp"

namespace trireme::scheduler {

/// Returns the arguments of sinfo for an output that read_nodes() can read.
std::vector<std::string> sinfo_words();

/// Parses the output of sinfo_words(). Skips lines of another form.
std::vector<NodeKind> read_nodes(std::string_view sinfo);

/// Parses a time of Slurm: "30", "30:00", "4:00:00", "2-12", "2-12:00:00", "infinite". Returns
/// seconds; none for no limit. Throws Error(usage) for invalid text.
std::optional<double> slurm_time_s(std::string_view text);

/// Expands Slurm's short form of node names: "n[1-2,07],m3" is n1, n2, n07, m3. Returns an empty
/// list if the text has another form.
std::vector<std::string> expand_nodes(std::string_view list);

/// Returns the nodes of a step. `list`: SLURM_STEP_NODELIST, "n[1-3]"; `tasks`:
/// SLURM_STEP_TASKS_PER_NODE, "2(x2),1". Returns an empty list if the two do not match.
std::vector<StepNode> step_nodes(std::string_view list, std::string_view tasks);

/// Returns the command that lists the times of a job for read_job_times(), one line for each start.
std::vector<std::string> sacct_words(const std::string& job);

/// Parses the output of sacct_words(): "submit|start|end" in Unix seconds. A time that is not known
/// yet ("Unknown", "None") is absent. Skips lines of another form.
std::vector<JobTimes> read_job_times(std::string_view sacct);

/// Parses one line of `scontrol -o show job ID`.
SchedulerJob read_slurm_job(std::string_view line);

/// Parses the output of `scontrol -o show job ID`, which exited with `code`.
SchedulerAnswer read_scheduler_answer(int code, std::string_view output);

/// Returns the value of KEY=VALUE in such a line; "" if the key is missing.
std::string word_of(std::string_view line, std::string_view key);

}  // namespace trireme::scheduler
