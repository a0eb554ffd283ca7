#include "job/attempt.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "core/timer.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::job {
namespace {

std::int64_t count_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::max<std::int64_t>(0, parse_integer(text).value_or(0));
}

/// Reads a variable with a Unix time above 0.
std::optional<double> time_in(const char* variable) {
  const char* text = std::getenv(variable);
  const auto value = text == nullptr ? std::nullopt : parse_integer(text);
  if (!value || *value <= 0) return std::nullopt;
  return static_cast<double>(*value);
}

constexpr std::size_t kMaxReportBytes = std::size_t{1} << 20;

/// Returns the current time: "2026-01-31T12:00:00.123Z".
std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const std::time_t seconds = std::chrono::system_clock::to_time_t(now);
  const auto milli =
      std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count() % 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  const std::size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text.data() + length, text.size() - length, ".%03dZ", static_cast<int>(milli));
  return text.data();
}

}  // namespace

AttemptId AttemptId::from_environment() {
  const scheduler::SchedulerVariables& names = scheduler::scheduler().variables();
  const char* job_id = std::getenv(names.job);
  if (job_id == nullptr) return {};
  return {job_id, count_in(names.restarts), count_in("TRIREME_ATTEMPT")};
}

std::uint64_t AttemptId::order() const {
  constexpr std::uint64_t kMostAttempts = 1'000'000;
  return 2 * (static_cast<std::uint64_t>(restart) * kMostAttempts +
              std::min(static_cast<std::uint64_t>(attempt), kMostAttempts - 1));
}

std::optional<double> job_end_from_environment() {
  return time_in(scheduler::scheduler().variables().job_end);
}

std::optional<double> job_start_from_environment() {
  return time_in(scheduler::scheduler().variables().job_start);
}

void put_attempt_id(Json& object, const AttemptId& attempt_id) {
  object["job"] = attempt_id.job;
  object["restart"] = attempt_id.restart;
  object["attempt"] = attempt_id.attempt;
}

AttemptId take_attempt_id(const Json& object, const std::string& where) {
  return {json_get<std::string>(object, "job", where),
          json_get<std::int64_t>(object, "restart", where),
          json_get<std::int64_t>(object, "attempt", where)};
}

void put_failure_report(Json& object, const FailureReport& failure_report) {
  object["rank"] = failure_report.rank;
  object["host"] = failure_report.host;
  object["kind"] = failure_report.kind;
  object["exit_code"] = failure_report.exit_code;
  object["step"] = failure_report.step;
  object["message"] = failure_report.message;
  if (failure_report.time) object["at"] = *failure_report.time;
  if (!failure_report.lost.kind.empty()) {
    object["lost"] = {{"rank", failure_report.lost.rank},
                      {"host", failure_report.lost.host},
                      {"kind", failure_report.lost.kind}};
  }
}

FailureReport take_failure_report(const Json& object, const std::string& where) {
  FailureReport failure_report;
  failure_report.rank = static_cast<int>(json_get<std::int64_t>(object, "rank", where));
  failure_report.host = json_get<std::string>(object, "host", where);
  failure_report.kind = json_get<std::string>(object, "kind", where);
  failure_report.exit_code = static_cast<int>(json_get<std::int64_t>(object, "exit_code", where));
  failure_report.step = json_get<std::int64_t>(object, "step", where);
  failure_report.message = json_get<std::string>(object, "message", where);
  if (object.contains("at")) failure_report.time = json_get<double>(object, "at", where);
  if (const auto lost = object.find("lost"); lost != object.end()) {
    failure_report.lost = {static_cast<int>(json_get<std::int64_t>(*lost, "rank", where)),
                           json_get<std::string>(*lost, "host", where),
                           json_get<std::string>(*lost, "kind", where)};
  }
  return failure_report;
}

void write_failure_report(const RunDirectory& folder,
                          const FailureReport& failure_report) noexcept {
  try {
    std::error_code ignored;
    std::filesystem::create_directory(folder.failure_reports(), ignored);
    Json json = Json::object();
    put_failure_report(json, failure_report);
    json["at"] = failure_report.time.value_or(unix_time_s());
    put_attempt_id(json, AttemptId::from_environment());
    json["pid"] = ::getpid();
    json["time"] = utc_now();
    write_file_atomic(folder.failure_reports() / rank_file(failure_report.rank, ".json"),
                      json_line(json));
  } catch (const std::exception& error) {
    log::warn(formatted("cannot write a failure report: {}", error.what()));
  }
}

std::vector<FailureReport> read_failure_reports(const RunDirectory& folder) {
  std::vector<FailureReport> failure_reports;
  std::error_code code;
  for (std::filesystem::directory_iterator it(folder.failure_reports(), code), end;
       !code && it != end; it.increment(code)) {
    if (it->path().extension() != ".json") continue;
    try {
      const std::string where = it->path().string();
      const Json json = read_json(where, {.max_bytes = kMaxReportBytes});
      failure_reports.push_back(take_failure_report(json, where));
      failure_reports.back().attempt_id = take_attempt_id(json, where);
    } catch (const Error&) {  // skip a file that is damaged or was written by another program
    }
  }
  std::sort(failure_reports.begin(), failure_reports.end(),
            [](const FailureReport& a, const FailureReport& b) { return a.rank < b.rank; });
  return failure_reports;
}

void clear_failure_reports(const RunDirectory& folder) {
  remove_tree(folder.failure_reports());
}

const AttemptRequest* Attempt::stop_request() const {
  const auto found = std::find_if(requests.rbegin(), requests.rend(),
                                  [](const AttemptRequest& one) { return one.want == "stop"; });
  return found == requests.rend() ? nullptr : &*found;
}

std::vector<FailureReport> unrecorded_reports(const std::vector<FailureReport>& files,
                                              const Attempt& attempt) {
  std::set<int> known;
  for (const FailureReport& one : attempt.failure_reports) known.insert(one.rank);
  std::vector<FailureReport> fresh;
  for (const FailureReport& one : files) {
    if (one.attempt_id == attempt.id() && !known.contains(one.rank)) fresh.push_back(one);
  }
  return fresh;
}

}  // namespace trireme::job
