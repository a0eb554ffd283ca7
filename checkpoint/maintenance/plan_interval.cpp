#include "checkpoint/maintenance/plan_interval.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include "core/error.hpp"

namespace trireme::checkpoint {
namespace {

void require(bool good, const char* option, double value, const char* rule) {
  if (!good) fail(ErrorKind::usage, "{} {}, must be {}", option, value, rule);
}

std::string number(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string duration(double seconds) {
  if (seconds < 120) return number(seconds, 1) + " s";
  if (seconds < 7200) return number(seconds / 60, 1) + " min";
  return number(seconds / 3600, 1) + " h";
}

}  // namespace

IntervalAnswer plan_interval(const IntervalQuestion& question) {
  constexpr double kMost = 1e9;  // upper limit of all values (about 30 years, if in seconds)
  const auto at_least = [](const char* option, double value, double least, const char* rule) {
    require(value >= least && value <= kMost, option, value, rule);
  };
  at_least("--stall-s", question.stall_s, 1e-6,
           "in [1e-6, 1e9] (measure it with `trireme bench checkpoint`)");
  at_least("--restart-s", question.restart_s, 0, "in [0, 1e9]");
  at_least("--device-mtbf-h", question.device_mtbf_h, 1e-3, "in [0.001, 1e9]");
  at_least("--step-time-s", question.step_time_s, 0, "in [0, 1e9]");
  if (question.mtbf_h != 0) at_least("--mtbf-h", question.mtbf_h, 1e-3, "in [0.001, 1e9]");
  if (question.devices != 0) at_least("--devices", question.devices, 1, "in [1, 1e9]");
  if ((question.mtbf_h > 0) == (question.devices > 0))
    fail(ErrorKind::usage, "plan-interval needs either --mtbf-h or --devices");
  IntervalAnswer answer;
  const double mtbf_h =
      question.mtbf_h > 0 ? question.mtbf_h : question.device_mtbf_h / question.devices;
  const double m = mtbf_h * 3600;
  const double c = question.stall_s;
  answer.mtbf_s = m;
  answer.young_s = std::sqrt(2 * c * m);
  answer.daly_s =
      c < 2 * m ? answer.young_s * (1 + std::sqrt(c / (2 * m)) / 3 + c / (18 * m)) - c : m;
  answer.waste = c / answer.daly_s + (answer.daly_s / 2 + question.restart_s) / m;
  return answer;
}

std::string plan_interval_text(const IntervalQuestion& question) {
  const IntervalAnswer answer = plan_interval(question);
  std::string text = formatted(
      "mean time between failures  {}\nsave every                  {}  (Daly; Young: {})\n",
      duration(answer.mtbf_s), duration(answer.daly_s), duration(answer.young_s));
  if (question.step_time_s > 0) {
    const double steps = std::max(1.0, std::round(answer.daly_s / question.step_time_s));
    text += formatted("that is                     --checkpoint.every {}\n", number(steps, 0));
  }
  const double lost = std::min(1.0, answer.waste);
  if (answer.waste >= 1)
    text += "no time is left for training: failures come before a restart and a save finish\n";
  return text +
         formatted(
             "time left for training      {} %  (saves {} %, repeated work {} %, restarts {} %)\n",
             number(100 * (1 - lost), 2), number(100 * question.stall_s / answer.daly_s, 2),
             number(50 * answer.daly_s / answer.mtbf_s, 2),
             number(100 * question.restart_s / answer.mtbf_s, 2));
}

}  // namespace trireme::checkpoint
