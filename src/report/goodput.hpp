#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "job/event_log.hpp"
#include "report/metrics_file.hpp"
#include "scheduler/scheduler.hpp"

/// Goodput: every second between the first submission and the end of a run belongs to one class.
namespace trireme::report {

enum class Activity {
  queue,         // a job of the run waits in the queue
  startup,       // from the nodes of a job to the start of the first step
  train,         // steps, without the parts below
  comm_exposed,  // communication that does not overlap with computation
  data_wait,     // steps wait for data
  checkpoint,    // saves, with the copy and the commit
  validation,
  redone,  // steps that a later attempt repeated, and the step that a failure interrupted
  down,    // no process runs, and no job waits in the queue
};

inline constexpr std::array<const char*, 9> kActivityNames{
    "queue",      "startup",    "train",  "comm_exposed", "data_wait",
    "checkpoint", "validation", "redone", "down"};

struct WallTime {
  std::array<double, kActivityNames.size()> seconds{};

  double& operator[](Activity what) { return seconds[static_cast<std::size_t>(what)]; }

  double operator[](Activity what) const { return seconds[static_cast<std::size_t>(what)]; }

  [[nodiscard]] double total() const;
};

/// A stretch of the time axis. Steps with all their parts are one span of class train or redone.
struct Span {
  Activity what = Activity::down;
  double begin = 0;  // Unix time
  double end = 0;
  std::int64_t attempt = -1;  // index in GoodputFacts::attempts; -1: between attempts
};

/// The course of one attempt.
struct AttemptCourse {
  double begin = 0;            // Unix time at which its processes started
  double end = 0;              // its end event, or the newest record that it left
  std::int64_t from_step = 0;  // last step before the attempt
  std::int64_t to_step = 0;    // last step that the attempt completed
  bool has_steps = false;      // false: it ended before its first step
  /// Steps after this one were repeated by a later attempt.
  std::optional<std::int64_t> kept_to{};
};

struct GoodputFacts {
  const std::vector<job::Attempt>& attempts;
  const MetricsFile& metrics;
  const std::vector<job::SubmissionRecord>& submissions;
  /// Times from the scheduler's accounting, by job id; jobs without accounting are absent.
  const std::map<std::string, std::vector<scheduler::JobTimes>>& jobs;
};

struct Goodput {
  WallTime wall;
  double begin = 0;  // first submission, or start of the first processes, Unix time
  double end = 0;
  std::vector<Span> spans;
  std::vector<AttemptCourse> courses;  // one for each attempt
  std::int64_t redone_steps = 0;
  std::int64_t committed_lost = 0;               // steps that were committed and had to be repeated
  double device_s = 0;                           // seconds of attempts, summed over their ranks
  std::vector<std::string> notes;                // facts that the files do not have, in plain words
  std::map<std::int64_t, std::int64_t> kept_to;  // by StepLine::attempt, if a step was repeated

  std::map<std::int64_t, std::int64_t> begun_after;  // last step before, by StepLine::attempt

  /// Returns the number of steps of a line. The first line of an attempt does not say it.
  [[nodiscard]] double steps_of(const StepLine& line) const;
  /// Returns true if the line belongs to a step that no later attempt repeated.
  [[nodiscard]] bool is_kept(const StepLine& line) const;
};

/// Computes the goodput of a run. Needs no scheduler: accounting only refines the time in the queue.
/// Without attempts, everything is 0. See docs/monitoring.md for the rules.
Goodput account(const GoodputFacts& facts);

}  // namespace trireme::report
