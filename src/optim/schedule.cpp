#include "optim/schedule.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <numbers>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::optim {
namespace {

double half_cosine(double t) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * t));
}

struct ScheduleRow {
  const char* name;
  bool warmup;
  /// `t` in (0, 1] is the progress after warmup; `start` = (step - 1) / total.
  double (*rate)(const OptimConfig& config, double t, double start);
};

constexpr std::array<ScheduleRow, 5> kSchedules{{
    {"cosine", true,
     [](const OptimConfig& c, double t, double) {
       return final_lr(c) + (c.lr - final_lr(c)) * half_cosine(t);
     }},
    {"linear", true,
     [](const OptimConfig& c, double t, double) { return c.lr + (final_lr(c) - c.lr) * t; }},
    {"constant", true, [](const OptimConfig& c, double, double) { return c.lr; }},
    {"minimind-v2", false,
     [](const OptimConfig& c, double, double start) { return c.lr * (0.1 + half_cosine(start)); }},
    {"minimind-v3", false,
     [](const OptimConfig& c, double t, double) { return c.lr * (0.1 + 0.9 * half_cosine(t)); }},
}};

const ScheduleRow* find_row(const std::string& name) {
  const auto* const found = std::find_if(kSchedules.begin(), kSchedules.end(),
                                         [&](const ScheduleRow& row) { return name == row.name; });
  return found == kSchedules.end() ? nullptr : found;
}

}  // namespace

std::string warmup_note(const OptimConfig& config, std::int64_t total_steps) {
  const ScheduleRow* row = find_row(config.schedule);
  if (row == nullptr || !row->warmup || config.warmup_steps <= total_steps) return "";
  return formatted(
      "optim.warmup_steps = {}, but train.steps = {}: the learning rate only reaches {} of {}",
      config.warmup_steps, total_steps,
      number_text(learning_rate(config, total_steps, total_steps)), number_text(config.lr));
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
  const auto length = static_cast<double>(std::max<std::int64_t>(total_steps - warmup, 1));
  const double t = std::min(static_cast<double>(step - warmup) / length, 1.0);
  const double start =
      static_cast<double>(step - 1) / static_cast<double>(std::max<std::int64_t>(total_steps, 1));
  return row->rate(config, t, start);
}

}  // namespace trireme::optim
