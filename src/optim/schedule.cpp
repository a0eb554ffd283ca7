#include "optim/schedule.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "core/rounded_text.hpp"
#include "core/step_values.hpp"

namespace trireme::optim {
namespace {

double half_cosine(double t) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * t));
}

double cosine_decay(double from, double to, double t) {
  return to + (from - to) * half_cosine(t);
}

double linear_decay(double from, double to, double t) {
  return from + (to - from) * t;
}

struct DecayRow {
  const char* name;
  double (*rate)(double from, double to, double t);  // t in (0, 1]
};

constexpr std::array<DecayRow, 4> kDecays{{
    {"linear", linear_decay},
    {"cosine", cosine_decay},
    {"sqrt", [](double from, double to, double t) { return from + (to - from) * std::sqrt(t); }},
    {kExponentialDecay,
     [](double from, double to, double t) { return from * std::pow(to / from, t); }},
}};

/// The place of a step in a run.
struct StepPlace {
  std::int64_t step = 1;    // from 1
  std::int64_t total = 0;   // train.steps
  std::int64_t warmup = 0;  // number of warmup steps

  /// Returns the progress after `begin`, in (0, 1].
  [[nodiscard]] double progress(std::int64_t begin) const {
    const auto length = static_cast<double>(std::max<std::int64_t>(total - begin, 1));
    return std::min(static_cast<double>(step - begin) / length, 1.0);
  }

  [[nodiscard]] double t() const { return progress(warmup); }
};

double wsd_rate(const OptimConfig& config, const StepPlace& at) {
  const std::int64_t begin = decay_begin(config, at.total);
  if (at.step <= begin) return config.lr;
  const auto* const row = std::find_if(kDecays.begin(), kDecays.end(), [&](const DecayRow& one) {
    return config.decay_shape == one.name;
  });
  if (row == kDecays.end())
    fail(ErrorKind::usage, "optim.decay_shape = {} is not a known shape", config.decay_shape);
  return row->rate(config.lr, final_lr(config), at.progress(begin));
}

double piecewise_rate(const OptimConfig& config, const StepPlace& at) {
  const std::vector<StepValue> points = parse_step_values(config.points);
  const auto next = std::find_if(points.begin(), points.end(),
                                 [&](const StepValue& point) { return point.step >= at.step; });
  if (next == points.end()) return points.back().value;
  if (next == points.begin() || next->step == at.step) return next->value;
  const StepValue& before = *std::prev(next);
  return linear_decay(
      before.value, next->value,
      static_cast<double>(at.step - before.step) / static_cast<double>(next->step - before.step));
}

struct ScheduleRow {
  const char* name;
  bool warmup;
  double (*rate)(const OptimConfig& config, const StepPlace& at);  // after warmup
};

constexpr std::array<ScheduleRow, 7> kSchedules{{
    {"cosine", true,
     [](const OptimConfig& c, const StepPlace& at) {
       return cosine_decay(c.lr, final_lr(c), at.t());
     }},
    {"linear", true,
     [](const OptimConfig& c, const StepPlace& at) {
       return linear_decay(c.lr, final_lr(c), at.t());
     }},
    {"constant", true, [](const OptimConfig& c, const StepPlace&) { return c.lr; }},
    {kWsdSchedule, true, wsd_rate},
    {kPiecewiseSchedule, false, piecewise_rate},
    {"minimind-v2", false,
     [](const OptimConfig& c, const StepPlace& at) {
       const double start = static_cast<double>(at.step - 1) /
                            static_cast<double>(std::max<std::int64_t>(at.total, 1));
       return c.lr * (0.1 + half_cosine(start));
     }},
    {"minimind-v3", false,
     [](const OptimConfig& c, const StepPlace& at) {
       return c.lr * (0.1 + 0.9 * half_cosine(at.t()));
     }},
}};

const ScheduleRow* find_row(const std::string& name) {
  const auto* const found = std::find_if(kSchedules.begin(), kSchedules.end(),
                                         [&](const ScheduleRow& row) { return name == row.name; });
  return found == kSchedules.end() ? nullptr : found;
}

/// Returns the list of optim.points. Adds a problem and returns an empty list if it is invalid.
std::vector<StepValue> checked_points(const OptimConfig& config, Problems& problems) {
  try {
    std::vector<StepValue> points = parse_step_values(config.points);
    for (const StepValue& point : points) {
      if (point.value >= 0 && point.value <= kMaxLr) continue;
      problems.add("optim.points", config.points,
                   formatted("has the rate {} at step {}. Rates must be in [0, {}]",
                             number_text(point.value), point.step, number_text(kMaxLr)));
      return {};
    }
    return points;
  } catch (const Error& error) {
    problems.add("optim.points", config.points, error.what());
    return {};
  }
}

double largest_rate(const std::vector<StepValue>& points) {
  double most = 0;
  for (const StepValue& point : points) most = std::max(most, point.value);
  return most;
}

void check_piecewise(const OptimConfig& config, Problems& problems) {
  if (config.points.empty())
    return problems.add("optim.points", "''",
                        "must be a list such as 0:0,100:3e-4,1000:3e-5 with optim.schedule = "
                        "piecewise");
  if (config.warmup_steps != 0)
    problems.add("optim.warmup_steps", config.warmup_steps,
                 "must be 0 with optim.schedule = piecewise: optim.points describe the warmup");
  const double most = largest_rate(checked_points(config, problems));
  if (most > 0 && config.lr != most)
    problems.add(
        "optim.lr", config.lr,
        formatted("must be {}, the largest rate of optim.points: leave it out", number_text(most)));
}

std::int64_t decay_steps(const OptimConfig& config, std::int64_t total_steps) {
  return config.decay_steps == kTenthOfSteps ? total_steps / 10 : config.decay_steps;
}

void check_wsd(const OptimConfig& config, Problems& problems) {
  if (config.decay_steps < kTenthOfSteps)
    problems.add("optim.decay_steps", config.decay_steps,
                 "must be 0 (no decay) or more, or -1: a tenth of train.steps");
  std::vector<std::string> shapes;
  for (const DecayRow& row : kDecays) shapes.emplace_back(row.name);
  problems.one_of("optim.decay_shape", config.decay_shape, shapes);
  if (config.decay_shape == kExponentialDecay && config.min_lr == 0)
    problems.add("optim.min_lr", config.min_lr,
                 "must be more than 0 with optim.decay_shape = exponential");
}

}  // namespace

std::int64_t decay_begin(const OptimConfig& config, std::int64_t total_steps) {
  return std::max(total_steps - decay_steps(config, total_steps),
                  std::min(config.warmup_steps, total_steps));
}

double largest_point(const OptimConfig& config) {
  Problems ignored;
  return largest_rate(checked_points(config, ignored));
}

std::string scaled_points(const OptimConfig& config, double factor) {
  return joined(parse_step_values(config.points), ",", [&](const StepValue& point) {
    return formatted("{}:{}", point.step, number_text(factor * point.value));
  });
}

void check_schedule(const OptimConfig& config, Problems& problems) {
  problems.one_of("optim.schedule", config.schedule, schedule_names());
  const OptimConfig usual;
  if (config.schedule == kPiecewiseSchedule) {
    check_piecewise(config, problems);
  } else if (!config.points.empty()) {
    problems.add("optim.points", config.points, "needs optim.schedule = piecewise");
  }
  if (config.schedule == kWsdSchedule) return check_wsd(config, problems);
  if (config.decay_steps != usual.decay_steps)
    problems.add("optim.decay_steps", config.decay_steps, "needs optim.schedule = wsd");
  if (config.decay_shape != usual.decay_shape)
    problems.add("optim.decay_shape", config.decay_shape, "needs optim.schedule = wsd");
}

std::string decay_note(const OptimConfig& config, std::int64_t total_steps, std::int64_t done) {
  if (config.schedule != kWsdSchedule || config.decay_steps == 0) return "";
  const std::int64_t steps = decay_steps(config, total_steps);
  if (steps > 0 && steps + config.warmup_steps > total_steps)
    return formatted(
        "optim.warmup_steps = {} and a decay of {} steps (optim.decay_steps) are together more than train.steps = {}: the decay begins at step {}",
        config.warmup_steps, steps, total_steps, decay_begin(config, total_steps));
  const std::int64_t begin = decay_begin(config, total_steps);
  if (begin >= total_steps)
    return formatted(
        "optim.schedule = wsd has no decay: optim.decay_steps = {}, and train.steps = {}{}. Set optim.decay_steps for a decay, or to 0",
        config.decay_steps, total_steps,
        total_steps < 10 ? ", of which a tenth is less than one step" : "");
  if (done <= begin || done >= total_steps) return "";
  return formatted(
      "the decay of optim.schedule = wsd begins at step {}, before the first step of this start ({}), which has the learning rate {}",
      begin, done + 1, rounded_text(learning_rate(config, done + 1, total_steps)));
}

std::string warmup_note(const OptimConfig& config, std::int64_t total_steps) {
  const ScheduleRow* row = find_row(config.schedule);
  if (row == nullptr || !row->warmup || config.warmup_steps <= total_steps) return "";
  return formatted(
      "optim.warmup_steps = {}, but train.steps = {}: the learning rate only reaches {} of {}",
      config.warmup_steps, total_steps,
      rounded_text(learning_rate(config, total_steps, total_steps)), number_text(config.lr));
}

std::vector<std::string> schedule_names() {
  std::vector<std::string> names;
  for (const ScheduleRow& row : kSchedules) names.emplace_back(row.name);
  return names;
}

double final_lr(const OptimConfig& config) {
  if (config.min_lr != kTenthOfLr) return config.min_lr;
  constexpr int kDigits = 14;  // decimal digits that a double represents exactly, after the first
  std::array<char, 32> text{};
  const auto [end, written] = std::to_chars(text.data(), text.data() + text.size(), 0.1 * config.lr,
                                            std::chars_format::scientific, kDigits);
  TRIREME_ASSERT(written == std::errc{});
  double value = 0;
  std::from_chars(text.data(), end, value);
  return value;
}

double learning_rate(const OptimConfig& config, std::int64_t step, std::int64_t total_steps) {
  const ScheduleRow* row = find_row(config.schedule);
  if (row == nullptr)
    fail(ErrorKind::usage, "optim.schedule = {} is not a known schedule", config.schedule);
  const std::int64_t warmup = row->warmup ? config.warmup_steps : 0;
  if (step <= warmup) return config.lr * static_cast<double>(step) / static_cast<double>(warmup);
  return row->rate(config, {step, total_steps, warmup});
}

}  // namespace trireme::optim
