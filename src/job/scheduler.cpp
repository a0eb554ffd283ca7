#include "job/scheduler.hpp"

#include <cstdlib>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/process/run_program.hpp"

namespace trireme {
namespace {

constexpr double kAnswer_s = 10;

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

}  // namespace

SchedulerAnswer read_scheduler_answer(int code, std::string_view output) {
  SchedulerAnswer answer;
  if (code != 0) {
    answer.answered = output.find("Invalid job id") != std::string_view::npos;
    return answer;
  }
  answer.answered = true;
  for (const std::string& line : split(output, '\n')) {
    const SchedulerJob job = SchedulerJob::parse(line);
    if (job.known) answer.jobs.push_back(job);
  }
  return answer;
}

SchedulerAnswer ask_scheduler(const std::string& id) {
  const ProgramEnd end = run_program({"scontrol", "-o", "show", "job", id}, kAnswer_s);
  return end.timed_out ? SchedulerAnswer{} : read_scheduler_answer(end.code, end.out);
}

std::string scheduler_id_from_environment() {
  const std::string array = variable("SLURM_ARRAY_JOB_ID");
  if (array.empty()) return variable("SLURM_JOB_ID");
  return array + "_" + variable("SLURM_ARRAY_TASK_ID");
}

std::optional<double> job_end_from_scheduler() {
  const std::string id = scheduler_id_from_environment();
  if (id.empty()) return std::nullopt;
  const SchedulerAnswer answer = ask_scheduler(id);
  return answer.jobs.empty() ? std::nullopt : answer.jobs.front().end_s;
}

}  // namespace trireme
