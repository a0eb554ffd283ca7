#include "report/summary.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/format_count.hpp"
#include "core/number.hpp"
#include "job/watch/run_view.hpp"

namespace trireme::report {
namespace {

std::string rounded(const char* pattern, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, value);
  return buffer.data();
}

std::string percent(double share) {
  return rounded(std::abs(share) < 0.1 ? "%.1f %%" : "%.0f %%", 100 * share);
}

std::string state_text(const std::string& state) {
  if (state == "done") return "is done";
  if (state == "running") return "is running";
  if (state == "stopped") return "has stopped on request";
  if (state == "failed") return "has failed";
  if (state == "lost") return "ended without a record of its end";
  if (state == "queued") return "waits for its next attempt";
  if (state == "new") return "has not begun";
  if (state == job::kNoEventsState) return "has checkpoints, but no event log of its attempts";
  return "is in the state \"" + state + "\"";
}

std::string progress_text(const RunReport& run) {
  std::string text = formatted("{} {}", run.name, state_text(run.state));
  if (run.steps) {
    text += run.steps_wanted ? formatted(": {} of {} steps", *run.steps, *run.steps_wanted)
                             : formatted(": {}", counted(*run.steps, "step"));
    if (run.tokens) text += formatted(" with {} tokens", format_count(*run.tokens));
  }
  if (run.ranks && !run.attempts.empty()) {
    text += formatted(" on {}", counted(*run.ranks, "rank"));
    const auto nodes = run.attempts.back().nodes.size();
    if (nodes > 0) text += formatted(" of {}", counted(nodes, "node"));
  }
  text += ".";
  if (run.params)
    text +=
        formatted(" The model has {} parameters.", format_count(static_cast<double>(*run.params)));
  return text;
}

std::string learning_text(const RunReport& run) {
  std::string text;
  if (run.loss_first && run.loss_last) {
    text += formatted(" The loss went from {} to {}", rounded("%.4f", *run.loss_first),
                      rounded("%.4f", *run.loss_last));
    text +=
        run.valid_loss && !run.valid_reward
            ? formatted(", and the newest validation loss is {}.", rounded("%.4f", *run.valid_loss))
            : std::string(".");
  }
  for (const TaskChange& one : run.task_changes)
    text += formatted(" The {} went from {} to {}.", one.metric.text, rounded("%.4g", one.first),
                      rounded("%.4g", one.last));
  if (run.valid_reward)
    text += formatted(" The newest validation reward is {}.", rounded("%.4g", *run.valid_reward));
  if (run.tokens_per_s) {
    text += formatted(" The throughput was {} tokens/s", format_count(*run.tokens_per_s));
    if (run.mfu)
      text += formatted(" (MFU {}{})", percent(*run.mfu),
                        run.mfu_predicted ? cat(", predicted ", percent(*run.mfu_predicted)) : "");
    text += ".";
  }
  if (run.speedup)
    text += formatted(" That is {} times the throughput of the compared run, an efficiency of {}.",
                      rounded("%.2f", *run.speedup), percent(*run.efficiency));
  return text;
}

std::string activity_text(std::size_t what) {
  constexpr std::array<const char*, kActivityNames.size()> kTexts{"waiting in the queue",
                                                                  "startup",
                                                                  "training",
                                                                  "exposed communication",
                                                                  "waiting for data",
                                                                  "checkpoints",
                                                                  "validation",
                                                                  "repeated steps",
                                                                  "down time"};
  return kTexts[what];
}

std::string goodput_text(const RunReport& run) {
  const auto share = run.goodput_share();
  if (!share) return "";
  const WallTime& wall = run.goodput.wall;
  std::string text = formatted(" The run took {}, of which {} was training (goodput)",
                               format_duration(wall.total()), percent(*share));
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < kActivityNames.size(); ++i)
    if (i != static_cast<std::size_t>(Activity::train)) order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return wall.seconds[a] > wall.seconds[b]; });
  std::string others;
  for (const std::size_t i : {order[0], order[1]}) {
    if (wall.seconds[i] < 0.005 * wall.total()) continue;
    others += formatted("{}{} ({})", others.empty() ? "" : " and ", activity_text(i),
                        percent(wall.seconds[i] / wall.total()));
  }
  if (!others.empty()) text += formatted("; the largest other parts are {}", others);
  return text + ".";
}

std::string failures_text(const RunReport& run) {
  const auto failures = std::count_if(run.attempts.begin(), run.attempts.end(), has_failed);
  if (run.attempts.size() < 2 && failures == 0) return "";
  std::string text = formatted(" The run had {}", counted(run.attempts.size(), "attempt"));
  text +=
      failures == 0 ? std::string(", and none failed.") : formatted(", and {} failed.", failures);
  text += run.goodput.redone_steps == 0
              ? std::string(" No step was repeated.")
              : formatted(" {} repeated after a failure.",
                          run.goodput.redone_steps == 1
                              ? std::string("1 step was")
                              : formatted("{} steps were", run.goodput.redone_steps));
  if (run.goodput.committed_lost > 0)
    text += formatted(" {} had been committed before: a checkpoint was lost.",
                      counted(run.goodput.committed_lost, "repeated step"));
  return text;
}

std::string slow_ranks_text(const RunReport& run) {
  if (run.slow_ranks.empty()) return "";
  const SlowRank& slow = run.slow_ranks.front();
  return formatted(" Rank {}{} is slow: its steps take {} longer than those of the others{}.",
                   slow.rank, slow.host.empty() ? "" : " on " + slow.host, percent(slow.excess),
                   slow.phase.empty() ? "" : formatted(" (phase: {})", slow.phase));
}

}  // namespace

bool has_failed(const AttemptSummary& attempt) {
  return attempt.reason != "done" && attempt.reason != "running" &&
         !attempt.reason.starts_with("stopped");
}

std::string summary_of(const RunReport& run) {
  return progress_text(run) + learning_text(run) + goodput_text(run) + failures_text(run) +
         slow_ranks_text(run);
}

}  // namespace trireme::report
