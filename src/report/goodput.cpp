#include "report/goodput.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.hpp"

namespace trireme::report {
namespace {

/// Builds the time axis: each call extends it to a later time, and time never goes back.
class TimeAxis {
 public:
  explicit TimeAxis(Goodput& goodput) : goodput_(goodput), now_(goodput.begin) {}

  [[nodiscard]] double now() const { return now_; }

  void until(Activity what, double end, std::int64_t attempt) {
    if (!(end > now_)) return;
    goodput_.wall[what] += end - now_;
    extend(what, end, attempt);
  }

  /// Adds the steps of one line, split into their parts.
  void step(const StepLine& line, double steps, bool is_kept, std::int64_t attempt) {
    const double seconds = line.step_time_s * steps;
    if (!(seconds > 0)) return;
    const std::array<std::pair<Activity, double>, 4> parts{
        {{Activity::data_wait, line.data_wait_s},
         {Activity::comm_exposed, line.comm_exposed_s},
         {Activity::checkpoint, line.save_s},
         {Activity::validation, line.validation_s}}};
    double sum = 0;
    for (const auto& [what, part] : parts) sum += part;
    const double scale = sum > line.step_time_s ? line.step_time_s / sum : 1;
    double rest = seconds;
    for (const auto& [what, part] : parts) {
      // Saves and validations of repeated steps were not in vain: they belong to earlier steps.
      if (!is_kept && (what == Activity::data_wait || what == Activity::comm_exposed)) continue;
      const double spent = part * scale * steps;
      goodput_.wall[what] += spent;
      rest -= spent;
    }
    goodput_.wall[is_kept ? Activity::train : Activity::redone] += std::max(0.0, rest);
    extend(is_kept ? Activity::train : Activity::redone, now_ + seconds, attempt);
  }

 private:
  void extend(Activity what, double end, std::int64_t attempt) {
    std::vector<Span>& spans = goodput_.spans;
    if (!spans.empty() && spans.back().what == what && spans.back().attempt == attempt) {
      spans.back().end = end;
    } else {
      spans.push_back({what, now_, end, attempt});
    }
    now_ = end;
  }

  Goodput& goodput_;
  double now_;
};

/// The lines of metrics of one attempt.
struct AttemptLines {
  std::size_t begin = 0;
  std::size_t end = 0;
  const ClosingLine* closing = nullptr;

  [[nodiscard]] bool empty() const { return begin == end; }
};

class Accountant {
 public:
  Accountant(const GoodputFacts& facts, Goodput& goodput) : facts_(facts), goodput_(goodput) {
    find_lines();
    for (std::size_t i = 0; i < facts_.attempts.size(); ++i) {
      goodput_.courses.push_back(course_of(i));
      goodput_.begun_after[facts_.attempts[i].number - 1] = goodput_.courses.back().from_step;
    }
    find_repeats();
  }

  void run() {
    if (facts_.attempts.empty()) return;
    goodput_.begin = first_time();
    TimeAxis axis(goodput_);
    for (std::size_t i = 0; i < facts_.attempts.size(); ++i) {
      add_gap(i, axis);
      add_attempt(i, axis);
      const auto& start = facts_.attempts[i].start;
      const AttemptCourse& course = goodput_.courses[i];
      goodput_.device_s +=
          (course.end - course.begin) * static_cast<double>(start ? start->ranks : 0);
    }
    goodput_.end = axis.now();
  }

 private:
  /// Assigns the lines to the attempts. `attempt` of a line is the number of its attempt, minus 1.
  void find_lines() {
    lines_.resize(facts_.attempts.size());
    std::map<std::int64_t, std::size_t> index;
    for (std::size_t i = 0; i < facts_.attempts.size(); ++i)
      index[facts_.attempts[i].number - 1] = i;
    const std::vector<StepLine>& steps = facts_.metrics.steps;
    for (std::size_t at = 0; at < steps.size();) {
      std::size_t end = at;
      while (end < steps.size() && steps[end].attempt == steps[at].attempt) ++end;
      if (const auto found = index.find(steps[at].attempt); found != index.end()) {
        lines_[found->second] = {at, end, nullptr};
      } else {
        goodput_.notes.push_back(formatted(
            "metrics.jsonl has lines of attempt {}, which the event log does not have. These lines are not counted.",
            steps[at].attempt + 1));
      }
      at = end;
    }
    for (const ClosingLine& one : facts_.metrics.closings)
      if (const auto found = index.find(one.attempt); found != index.end())
        lines_[found->second].closing = &one;
  }

  [[nodiscard]] const StepLine* first_line(std::size_t i) const {
    return lines_[i].empty() ? nullptr : &facts_.metrics.steps[lines_[i].begin];
  }

  [[nodiscard]] const StepLine* last_line(std::size_t i) const {
    return lines_[i].empty() ? nullptr : &facts_.metrics.steps[lines_[i].end - 1];
  }

  AttemptCourse course_of(std::size_t i) const {
    const job::Attempt& attempt = facts_.attempts[i];
    AttemptCourse course;
    course.begin = attempt.began_at;
    if (attempt.start && attempt.start->age_s) {
      course.begin -= *attempt.start->age_s;
    } else if (attempt.ready) {
      course.begin = std::min(course.begin, attempt.ready_at - attempt.ready->start_s);
    }
    if (attempt.start) course.from_step = std::max<std::int64_t>(0, attempt.start->resumed_from);
    if (attempt.ready) course.from_step = attempt.ready->step - 1;
    course.to_step = course.from_step;
    course.has_steps = attempt.ready.has_value();
    course.end = std::max(
        {course.begin, attempt.began_at, attempt.ready_at, attempt.committed_at, attempt.ended_at});
    if (!attempt.start) course.end = course.begin;  // `job finish` wrote its only event
    if (const StepLine* last = last_line(i)) {
      course.has_steps = true;
      course.to_step = last->step;
      if (!attempt.end && std::isfinite(last->time)) course.end = std::max(course.end, last->time);
    }
    if (attempt.end && course.has_steps)
      course.to_step = std::max(course.to_step, attempt.end->step);
    for (const job::FailureReport& one : attempt.failure_reports) {
      if (course.has_steps) course.to_step = std::max(course.to_step, one.step);
      if (one.time) course.end = std::max(course.end, *one.time);
    }
    return course;
  }

  /// Finds the steps that later attempts repeated.
  void find_repeats() {
    std::optional<std::int64_t> kept_to;
    for (std::size_t i = facts_.attempts.size(); i-- > 0;) {
      AttemptCourse& course = goodput_.courses[i];
      course.kept_to = kept_to;
      if (kept_to && course.has_steps)
        goodput_.redone_steps +=
            std::max<std::int64_t>(0, course.to_step - std::max(*kept_to, course.from_step));
      if (course.has_steps)
        kept_to = std::min(kept_to.value_or(course.from_step), course.from_step);
    }
    std::int64_t committed = -1;
    for (std::size_t i = 0; i < facts_.attempts.size(); ++i) {
      const AttemptCourse& course = goodput_.courses[i];
      if (course.kept_to) goodput_.kept_to[facts_.attempts[i].number - 1] = *course.kept_to;
      if (course.has_steps && committed > course.from_step) {
        goodput_.committed_lost += committed - course.from_step;
        committed = course.from_step;
      }
      committed = std::max(committed, facts_.attempts[i].committed);
    }
  }

  /// Returns true if attempt `i` is the first one since its job got its nodes.
  [[nodiscard]] bool begins_job(std::size_t i) const {
    const job::AttemptId& attempt_id = facts_.attempts[i].id();
    if (attempt_id.job.empty()) return false;
    if (i == 0) return true;
    const job::AttemptId& before = facts_.attempts[i - 1].id();
    return before.job != attempt_id.job || before.restart != attempt_id.restart;
  }

  [[nodiscard]] const scheduler::JobTimes* accounting_of(std::size_t i) const {
    const job::AttemptId& attempt_id = facts_.attempts[i].id();
    const auto found = facts_.jobs.find(attempt_id.job);
    if (found == facts_.jobs.end() || found->second.empty()) return nullptr;
    const auto restart = static_cast<std::size_t>(std::max<std::int64_t>(0, attempt_id.restart));
    return restart < found->second.size() ? &found->second[restart] : nullptr;
  }

  /// Returns the time at which the job of attempt `i` got its nodes; none if it is unknown.
  [[nodiscard]] std::optional<double> nodes_since(std::size_t i) const {
    const auto& start = facts_.attempts[i].start;
    if (start && start->job_start) return start->job_start;
    const scheduler::JobTimes* times = accounting_of(i);
    return times == nullptr ? std::nullopt : times->start_s;
  }

  /// Returns the time since which the job of attempt `i` waited in the queue; none if it is unknown.
  [[nodiscard]] std::optional<double> queued_since(std::size_t i) const {
    if (const scheduler::JobTimes* times = accounting_of(i); times != nullptr && times->submit_s)
      return times->submit_s;
    const job::AttemptId& attempt_id = facts_.attempts[i].id();
    if (attempt_id.restart > 0) {  // requeued, by `job finish` or by the scheduler
      if (i == 0) return std::nullopt;
      const job::Attempt& before = facts_.attempts[i - 1];
      const bool was_asked = before.decision && before.decision->action == "requeue";
      return was_asked ? before.decided_at : goodput_.courses[i - 1].end;
    }
    std::optional<double> since;
    for (const job::SubmissionRecord& one : facts_.submissions) {
      const bool is_own = one.job == attempt_id.job || attempt_id.job.starts_with(one.job + "_");
      if (is_own && one.time <= goodput_.courses[i].begin) since = one.time;
    }
    return since;
  }

  [[nodiscard]] double first_time() const {
    double first = goodput_.courses.front().begin;
    if (!begins_job(0)) return first;
    if (const auto nodes = nodes_since(0)) first = std::min(first, *nodes);
    if (const auto queued = queued_since(0)) first = std::min(first, *queued);
    return first;
  }

  /// Adds the time between the end of the previous attempt and the start of attempt `i`.
  void add_gap(std::size_t i, TimeAxis& axis) {
    const double begin = goodput_.courses[i].begin;
    if (begins_job(i)) {
      const auto queued = queued_since(i);
      const double nodes = std::min(begin, nodes_since(i).value_or(begin));
      if (queued) {
        axis.until(Activity::down, std::min(*queued, nodes), -1);
        axis.until(Activity::queue, nodes, -1);
      } else {
        axis.until(Activity::down, nodes, -1);
        goodput_.notes.push_back(formatted(
            "The time that job {} waited in the queue is unknown: it was not submitted with `trireme submit`, and the scheduler has no accounting record.{}",
            facts_.attempts[i].id().job,
            i == 0 ? " The total begins when the job got its nodes or its processes started."
                   : " The time before it counts as down."));
      }
      axis.until(Activity::startup, begin, static_cast<std::int64_t>(i));
    }
    axis.until(Activity::down, begin, -1);
  }

  void add_attempt(std::size_t i, TimeAxis& axis) {
    const auto number = static_cast<std::int64_t>(i);
    const AttemptCourse& course = goodput_.courses[i];
    const job::Attempt& attempt = facts_.attempts[i];
    const StepLine* first = first_line(i);
    if (first == nullptr) {
      const bool is_kept = !course.kept_to;
      axis.until(Activity::startup, course.has_steps ? attempt.ready_at : course.end, number);
      axis.until(is_kept ? Activity::train : Activity::redone, course.end, number);
      if (course.has_steps)
        goodput_.notes.push_back(formatted(
            "metrics.jsonl has no line of attempt {}: the parts of its steps are unknown.",
            attempt.number));
      return;
    }
    const double first_s = first->step_time_s * goodput_.steps_of(*first);
    const double steps_begin = std::isfinite(first->time) ? first->time - first_s : axis.now();
    axis.until(Activity::startup, steps_begin, number);
    double steps_s = 0;
    for (std::size_t at = lines_[i].begin; at < lines_[i].end; ++at) {
      const StepLine& line = facts_.metrics.steps[at];
      const double steps = goodput_.steps_of(line);
      axis.step(line, steps, goodput_.is_kept(line), number);
      steps_s += line.step_time_s * steps;
    }
    add_last_save(i, steps_begin, steps_s, axis);
    const bool is_whole = attempt.end && attempt.end->state != "failed";
    const bool is_repeated = course.kept_to && *course.kept_to <= course.to_step;
    axis.until(is_whole      ? Activity::checkpoint
               : is_repeated ? Activity::redone
                             : Activity::train,
               course.end, number);
  }

  /// Adds the save and the validation after the last step, which no line of a step contains.
  void add_last_save(std::size_t i, double steps_begin, double steps_s, TimeAxis& axis) {
    const ClosingLine* closing = lines_[i].closing;
    if (closing == nullptr || !std::isfinite(closing->time_s)) return;
    const double rest_s = std::max(0.0, closing->time_s - steps_s);
    double validation_s = 0;
    for (const ValidationPoint& one : facts_.metrics.validations)
      if (one.attempt == closing->attempt && one.step == closing->step) validation_s = one.seconds;
    const auto number = static_cast<std::int64_t>(i);
    axis.until(Activity::validation, steps_begin + steps_s + std::min(rest_s, validation_s),
               number);
    axis.until(Activity::checkpoint, steps_begin + steps_s + rest_s, number);
  }

  const GoodputFacts& facts_;
  Goodput& goodput_;
  std::vector<AttemptLines> lines_;
};

}  // namespace

double WallTime::total() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

double Goodput::steps_of(const StepLine& line) const {
  if (line.num_steps > 0) return static_cast<double>(line.num_steps);
  const auto begun = begun_after.find(line.attempt);
  return begun == begun_after.end()
             ? 1.0
             : static_cast<double>(std::max<std::int64_t>(1, line.step - begun->second));
}

bool Goodput::is_kept(const StepLine& line) const {
  const auto found = kept_to.find(line.attempt);
  return found == kept_to.end() || line.step <= found->second;
}

Goodput account(const GoodputFacts& facts) {
  Goodput goodput;
  Accountant(facts, goodput).run();
  return goodput;
}

}  // namespace trireme::report
