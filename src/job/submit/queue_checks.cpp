#include "job/submit/queue_checks.hpp"

#include <algorithm>
#include <cctype>

#include "core/error.hpp"
#include "core/join.hpp"

namespace trireme::job {
namespace {

std::vector<std::string> jobs_before(const SubmitRequest& request) {
  return request.after.empty() ? std::vector<std::string>() : split(request.after, ':');
}

bool waits_for(const SubmitRequest& request, const std::string& job) {
  const std::vector<std::string> before = jobs_before(request);
  return std::find(before.begin(), before.end(), job) != before.end();
}

bool is_job_id(const std::string& text) {
  return !text.empty() && std::isdigit(static_cast<unsigned char>(text.front())) != 0 &&
         text.find_first_not_of("0123456789_+") == std::string::npos;
}

}  // namespace

std::vector<SubmitProblem> run_problems(const SubmitRequest& request, const RunStatus& run) {
  const std::string folder = request.run.string();
  const scheduler::SchedulerWords& words = scheduler::scheduler().words();
  if (run.state == "running" && !waits_for(request, run.job)) {
    return {{"run-in-use",
             run.job.empty() ? formatted("{} is in use by a process outside {}", folder, words.name)
                             : formatted("{} is in use by job {}", folder, run.job),
             run.job.empty()
                 ? std::string("wait for its end, or give another --run")
                 : formatted("give --after {} to resume after it, or another --run", run.job)}};
  }
  const bool is_queued = run.state == "pending" || run.state == "saved and waiting";
  if (is_queued && !waits_for(request, run.job)) {
    return {{"run-queued", formatted("job {} of {} waits in the queue already", run.job, folder),
             formatted("let it run, or cancel it ({} {}), or give --after {} to resume after it",
                       words.cancel, run.job, run.job)}};
  }
  if (run.steps_done > 0 && run.steps_done >= run.steps) {
    return {{"run-done",
             formatted("{} has done its last step, {} of {}", folder, run.steps_done, run.steps),
             "raise --train.steps to train further, or give another --run"}};
  }
  return {};
}

std::vector<SubmitProblem> after_problems(const SubmitRequest& request,
                                          const scheduler::SchedulerQuery& ask) {
  std::vector<SubmitProblem> problems;
  for (const std::string& job : jobs_before(request)) {
    if (!is_job_id(job))
      fail(ErrorKind::usage, "--after {}: {} must be the number of a job", request.after, job);
    const scheduler::SchedulerAnswer answer = ask(job);
    if (!answer.answered) continue;
    if (answer.jobs.empty()) {
      problems.push_back(
          {"after-unknown",
           formatted("--after {}: the controller does not know job {}", request.after, job),
           formatted("omit it if that job has ended ({} lists the others)",
                     scheduler::scheduler().words().list_jobs)});
      continue;
    }
    for (const scheduler::SchedulerJob& one : answer.jobs) {
      if (one.is_pending() || one.is_active() || one.state == "COMPLETED") continue;
      problems.push_back(
          {"after-failed",
           formatted("--after {}: job {} has ended as {}, so this job would never start",
                     request.after, one.id, one.state),
           "submit that job again first, or omit it"});
    }
  }
  return problems;
}

}  // namespace trireme::job
