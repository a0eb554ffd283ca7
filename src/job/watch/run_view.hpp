#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "job/run_folder.hpp"

namespace trireme {

/// How a run stands, from its folder alone: journal, newest line of metrics, configuration. What is
/// not known is absent.
struct RunView {
  std::string
      state;  // "running", "done", "stopped", "failed", "queued" (comes back), "lost", "new"
  std::int64_t leg = 0;
  std::string job;
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> steps;
  std::optional<double> loss;
  std::optional<double> tokens_per_s;
  std::optional<double> eta_s;       // to the last step, at the pace of the last lines
  std::optional<double> job_left_s;  // until the scheduler ends the job
  std::optional<std::int64_t> last_commit_step;
  std::optional<double> last_commit_age_s;
  std::optional<std::int64_t> slowest_rank;  // which kept the others waiting

  /// The last line of metrics is so old; absent without one.
  std::optional<double> silent_s;

  [[nodiscard]] bool has_ended() const {
    return state == "done" || state == "stopped" || state == "failed";
  }
};

/// `now_s`: Unix time. Throws Error(data) where no run is.
RunView view_run(const RunFolder& folder, double now_s);

/// One line for people: "running  leg 2  job 17  step 1200/20000  loss 3.41 ...".
std::string to_line(const RunView& view);

/// {"state", "leg", "job", "step", "steps", "loss", "tokens_per_s", "eta_s", "job_left_s",
/// "last_commit_step", "last_commit_age_s", "slowest_rank"}, null for what is not known.
std::string to_json_text(const RunView& view);

}  // namespace trireme
