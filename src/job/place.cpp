#include "job/place.hpp"

#include <algorithm>
#include <cstdlib>

#include "core/number.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme {
namespace {

std::int64_t count_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::max<std::int64_t>(0, parse_integer(text).value_or(0));
}

}  // namespace

JobPlace JobPlace::from_environment() {
  const SchedulerVariables& names = scheduler().variables();
  const char* job_id = std::getenv(names.job);
  if (job_id == nullptr) return {};
  return {job_id, count_in(names.restarts), count_in("TRIREME_ATTEMPT")};
}

std::uint64_t JobPlace::order() const {
  constexpr std::uint64_t kMostAttempts = 1'000'000;
  return 2 * (static_cast<std::uint64_t>(restart) * kMostAttempts +
              std::min(static_cast<std::uint64_t>(attempt), kMostAttempts - 1));
}

std::optional<double> job_end_from_environment() {
  const char* text = std::getenv(scheduler().variables().job_end);
  const auto value = text == nullptr ? std::nullopt : parse_integer(text);
  if (!value || *value <= 0) return std::nullopt;
  return static_cast<double>(*value);
}

}  // namespace trireme
