#include "train/profile/phase_times.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/error.hpp"

namespace trireme::train {
namespace {

std::size_t row_of(Phase phase) {
  for (std::size_t i = 0; i < kPhaseRows.size(); ++i)
    if (kPhaseRows[i].phase == phase) return i;
  fail(ErrorKind::internal, "phase {} has no row", static_cast<int>(phase));
}

bool keeps_inner_ranges(Phase phase) {
  return phase == Phase::data_wait || phase == Phase::checkpoint || phase == Phase::other;
}

/// Returns a cell of the table: milliseconds and the share of the step.
std::string cell(double seconds, double step_s) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%10.3f ms %5.1f %%", 1000 * seconds,
                step_s > 0 ? 100 * seconds / step_s : 0);
  return text.data();
}

std::string padded(std::string text, std::size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

}  // namespace

void PhaseTimes::start(std::int64_t step, double now_s) {
  current_ = {step, 0, {}};
  step_start_s_ = counted_s_ = now_s;
}

void PhaseTimes::count(double now_s) {
  current_.phases_s[row_of(stack_.back().phase)] += now_s - counted_s_;
  counted_s_ = now_s;
}

bool PhaseTimes::begin_changes(Phase phase) const {
  return phase != Phase::none && !stack_.back().keeps_inner_ranges;
}

void PhaseTimes::begin(Phase phase, double now_s) {
  count(now_s);
  if (begin_changes(phase)) {
    stack_.push_back({phase, keeps_inner_ranges(phase), true});
  } else {
    const Range outer = stack_.back();
    stack_.push_back({outer.phase, outer.keeps_inner_ranges, false});
  }
}

void PhaseTimes::end(double now_s) {
  count(now_s);
  if (stack_.size() > 1) stack_.pop_back();
}

void PhaseTimes::end_step(double now_s) {
  count(now_s);
  current_.step_s = now_s - step_start_s_;
  steps_.push_back(current_);
  start(current_.number + 1, now_s);
}

Json PhaseTimes::to_json(int rank) const {
  const auto put = [](Json& object, const Step& step, double divisor) {
    object["step_s"] = step.step_s / divisor;
    for (std::size_t i = 0; i < kPhaseRows.size(); ++i)
      object[std::string(kPhaseRows[i].key)] = step.phases_s[i] / divisor;
  };
  Step sum{};
  Json list = Json::array();
  for (const Step& step : steps_) {
    Json& line = list.emplace_back(Json{{"step", step.number}});
    put(line, step, 1);
    sum.step_s += step.step_s;
    for (std::size_t i = 0; i < kPhaseRows.size(); ++i) sum.phases_s[i] += step.phases_s[i];
  }
  Json result{{"rank", rank}, {"num_steps", steps_.size()}};
  put(result["mean"], sum, static_cast<double>(std::max<std::size_t>(steps_.size(), 1)));
  result["steps"] = std::move(list);
  return result;
}

std::string phase_table(std::span<const Json> ranks) {
  constexpr std::size_t kLabelWidth = 24;
  const std::size_t cell_width = cell(0, 0).size() + 2;
  std::string text = padded("mean per step", kLabelWidth);
  for (const Json& rank : ranks) {
    const std::string title = formatted("rank {}", rank.at("rank").get<std::int64_t>());
    text += std::string(cell_width - title.size(), ' ') + title;
  }
  const auto add_row = [&](std::string_view label, std::string_view key) {
    text += "\n" + padded(std::string(label), kLabelWidth);
    for (const Json& rank : ranks) {
      const Json& mean = rank.at("mean");
      text += "  " + cell(mean.at(key).get<double>(), mean.at("step_s").get<double>());
    }
  };
  for (const PhaseRow& row : kPhaseRows) add_row(row.label, row.key);
  add_row("step", "step_s");
  return text;
}

}  // namespace trireme::train
