#include "job/event_log.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "core/timer.hpp"

namespace trireme::job {
namespace {

constexpr std::size_t kMaxJournalBytes = std::size_t{1} << 30;

/// Maximum wait for the mutex. With this limit, an exiting process does not wait forever for a
/// thread that hangs in a write.
constexpr std::chrono::seconds kPatience(3);

constexpr const char* kWhereEventLog = "journal.jsonl";

std::int64_t integer(const Json& line, const char* key) {
  return json_get<std::int64_t>(line, key, kWhereEventLog);
}

std::string text(const Json& line, const char* key) {
  return json_get<std::string>(line, key, kWhereEventLog);
}

std::vector<std::string> texts(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_array())
    fail(ErrorKind::data, "{}: {} must be an array", kWhereEventLog, key);
  std::vector<std::string> all;
  for (const Json& one : *found) {
    if (!one.is_string()) fail(ErrorKind::data, "{}: {} must hold texts", kWhereEventLog, key);
    all.push_back(one.get<std::string>());
  }
  return all;
}

/// Reads a step. Returns -1 for null.
std::int64_t step_or_none(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_null() ? -1 : integer(line, key);
}

std::optional<double> optional_number(const Json& line, const char* key) {
  if (!line.contains(key)) return std::nullopt;
  return json_get<double>(line, key, kWhereEventLog);
}

AttemptStart start_in(const Json& line) {
  AttemptStart start;
  start.attempt_id = take_attempt_id(line, kWhereEventLog);
  start.nodes = texts(line, "nodes");
  start.ranks = integer(line, "ranks");
  start.resumed_from = step_or_none(line, "resumed_from");
  start.job_end = optional_number(line, "job_end");
  start.job_start = optional_number(line, "job_start");
  start.age_s = optional_number(line, "age_s");
  const auto hashes = line.find("hashes");
  if (hashes == line.end() || !hashes->is_object())
    fail(ErrorKind::data, "{}: hashes must be an object", kWhereEventLog);
  for (const auto& [name, value] : hashes->items())
    start.hashes[name] = text(*hashes, name.c_str());
  return start;
}

Decision decision_in(const Json& line) {
  Decision decision;
  decision.action = text(line, "verdict");
  decision.why = text(line, "why");
  decision.exit_code = static_cast<int>(integer(line, "exit_code"));
  const auto cause = line.find("root_cause");
  if (cause == line.end()) fail(ErrorKind::data, "{}: root_cause is missing", kWhereEventLog);
  decision.root_cause = {integer(*cause, "rank"), text(*cause, "host"), text(*cause, "kind"),
                         text(*cause, "message")};
  decision.step_before = integer(line, "step_before");
  decision.step_after = integer(line, "step_after");
  decision.failures_in_a_row = integer(line, "failures_in_a_row");
  decision.exclude = texts(line, "exclude");
  decision.is_requeued = line.contains("is_requeued");
  return decision;
}

/// Parses one event and adds it to `attempt`. Throws Error(data) for missing or invalid members.
/// Ignores the members of an unknown event, which a newer version of Trireme may have written.
void take_event(const std::string& event, double time, const Json& line, Attempt& attempt) {
  if (event == "start") {
    attempt.start = start_in(line);
  } else if (event == "ready") {
    attempt.ready =
        AttemptReady{integer(line, "step"), json_get<double>(line, "start_s", kWhereEventLog)};
    attempt.ready_at = time;
  } else if (event == "commit") {
    attempt.committed = integer(line, "step");
    attempt.committed_at = time;
  } else if (event == "request") {
    attempt.requests.push_back({text(line, "want"), text(line, "by"), integer(line, "step")});
  } else if (event == "verdict") {
    attempt.failure_reports.push_back(take_failure_report(line, kWhereEventLog));
  } else if (event == "end") {
    attempt.end = AttemptEnd{text(line, "state"), static_cast<int>(integer(line, "exit_code")),
                             integer(line, "step"), line.value("reason", "")};
    attempt.ended_at = time;
  } else if (event == "decision") {
    attempt.decision = decision_in(line);
    attempt.decided_at = time;
    attempt.decided_id = take_attempt_id(line, kWhereEventLog);
  }
}

/// Returns the attempt that a line belongs to: the newest one, or, for a higher number, a new one
/// that is appended.
Attempt& attempt_of(std::int64_t number, double time, EventLogContent& content) {
  if (content.attempts.empty() || number > content.attempts.back().number) {
    content.attempts.emplace_back();
    content.attempts.back().number = number;
    content.attempts.back().began_at = time;
  }
  return content.attempts.back();
}

void put_start(Json& object, const AttemptStart& start) {
  put_attempt_id(object, start.attempt_id);
  object["nodes"] = start.nodes;
  object["ranks"] = start.ranks;
  object["hashes"] = start.hashes;
  object["resumed_from"] = start.resumed_from < 0 ? Json(nullptr) : Json(start.resumed_from);
  if (start.job_end) object["job_end"] = *start.job_end;
  if (start.job_start) object["job_start"] = *start.job_start;
  if (start.age_s) object["age_s"] = *start.age_s;
}

/// Parses one line without its line feed and adds it to `content`. If the line is incomplete, out
/// of order or not an event, changes nothing and returns false.
bool take_line(std::string_view line, EventLogContent& content) {
  try {
    const Json json = parse_json(line, kWhereEventLog);
    const std::int64_t seq = integer(json, "seq");
    const std::int64_t number = integer(json, "leg");
    const double time = json_get<double>(json, "time", kWhereEventLog);
    const std::string event = text(json, "event");
    const std::int64_t newest = content.attempts.empty() ? 0 : content.attempts.back().number;
    if (number < 1) return false;
    // Skip the line: its writer did not notice that it had lost the lock.
    if (number < newest) return true;
    const bool overlaps = number > newest && seq <= content.lines;  // with lines of an older writer
    if (seq != content.lines + 1 && !overlaps) return false;
    Attempt parsed;
    take_event(event, time, json, parsed);  // throws before anything is changed
    content.lines = seq;
    Attempt& attempt = attempt_of(number, time, content);
    take_event(event, time, json, attempt);
    attempt.last_at = time;
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::int64_t EventLogContent::committed() const {
  std::int64_t newest = -1;
  for (const Attempt& attempt : attempts) newest = std::max(newest, attempt.committed);
  return newest;
}

std::string EventLogContent::run_id() const {
  if (attempts.empty()) return "";
  const Attempt& first = attempts.front();
  const bool has_host = first.start && !first.start->nodes.empty();
  return xxh3_128_hex(formatted("{} {} {}", number_text(first.began_at), first.id().job,
                                has_host ? first.start->nodes.front() : ""));
}

EventLogContent read_event_log(const std::filesystem::path& file) {
  EventLogContent content;
  std::error_code absent;
  if (!std::filesystem::exists(file, absent)) return content;
  const std::string text = read_file(file, kMaxJournalBytes);
  content.bytes = text.size();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    if (!take_line(std::string_view(text).substr(begin, end - begin), content)) break;
    begin = end + 1;
    content.valid_bytes = begin;
  }
  return content;
}

void EventLog::open(std::function<bool()> may_write) {
  open_newest_attempt(std::move(may_write));
  begin_attempt();
}

void EventLog::open_newest_attempt(std::function<bool()> may_write) {
  may_write_ = std::move(may_write);
  attempts_ = recover().attempts;
  attempt_ = attempts_.empty() ? 1 : attempts_.back().number;
  open_ = true;
}

EventLogContent EventLog::recover() {
  EventLogContent content = read_event_log(file_);
  if (content.bytes > content.valid_bytes) {
    log::warn(formatted("{}: truncated the last {} of {} bytes, which are not complete events",
                        file_.string(), content.bytes - content.valid_bytes, content.bytes));
  }
  fd_ = Fd(::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd_) fail_to_write("open", file_, errno);
  if (content.bytes > content.valid_bytes &&
      ::ftruncate(fd_.get(), static_cast<off_t>(content.valid_bytes)) != 0)
    fail_to_write("cut", file_, errno);
  seq_ = content.lines;
  torn_ = false;
  return content;
}

void EventLog::write_whole(const std::string& line) {
  torn_ = true;
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t wrote = ::write(fd_.get(), line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail_to_write("write", file_, errno);
    done += static_cast<std::size_t>(wrote);
  }
  torn_ = false;
}

void EventLog::append(const char* event, std::int64_t attempt, const Json& members) {
  if (!open_) return;
  // Wait until a wall clock time, because ThreadSanitizer of GCC 12 does not support the call that
  // waits for a duration.
  const std::unique_lock lock(mutex_, std::chrono::system_clock::now() + kPatience);
  if (!lock.owns_lock() || !may_write_()) return;
  if (torn_) recover();
  Json line{{"seq", seq_ + 1}, {"time", unix_time_s()}, {"leg", attempt}, {"event", event}};
  line.update(members);
  write_whole(json_line(line));
  ++seq_;
  if (::fdatasync(fd_.get()) != 0) fail_to_write("fsync", file_, errno);
}

void EventLog::start(const AttemptStart& start) {
  Json members;
  put_start(members, start);
  append("start", attempt_, members);
}

void EventLog::ready(const AttemptReady& ready) {
  append("ready", attempt_, {{"step", ready.step}, {"start_s", ready.start_s}});
}

void EventLog::commit(std::int64_t step) {
  append("commit", attempt_, {{"step", step}});
}

void EventLog::request(const AttemptRequest& request) {
  append("request", attempt_, {{"want", request.want}, {"by", request.by}, {"step", request.step}});
}

void EventLog::failure_report(const FailureReport& failure_report, std::int64_t attempt) {
  Json members;
  put_failure_report(members, failure_report);
  append("verdict", attempt, members);
}

void EventLog::end(const AttemptEnd& end) {
  Json members{{"state", end.state}, {"exit_code", end.exit_code}, {"step", end.step}};
  if (!end.reason.empty()) members["reason"] = end.reason;
  append("end", attempt_, members);
}

void EventLog::decision(const Decision& decision, const AttemptId& attempt_id) {
  Json members;
  put_decision(members, decision);
  put_attempt_id(members, attempt_id);
  append("decision", attempt_, members);
}

void put_decision(Json& object, const Decision& decision) {
  object["verdict"] = decision.action;
  object["why"] = decision.why;
  object["exit_code"] = decision.exit_code;
  object["root_cause"] = {{"rank", decision.root_cause.rank},
                          {"host", decision.root_cause.host},
                          {"kind", decision.root_cause.kind},
                          {"message", decision.root_cause.message}};
  object["step_before"] = decision.step_before;
  object["step_after"] = decision.step_after;
  object["failures_in_a_row"] = decision.failures_in_a_row;
  object["exclude"] = decision.exclude;
  if (decision.is_requeued) object["is_requeued"] = true;
}

}  // namespace trireme::job
