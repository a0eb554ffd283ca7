#include "job/journal.hpp"

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

namespace trireme {
namespace {

constexpr std::size_t kMaxJournalBytes = std::size_t{1} << 30;

/// Limit of the wait for the mutex, so that an exiting process does not wait for a thread that is
/// stuck in a write.
constexpr std::chrono::seconds kPatience(3);

constexpr const char* kWhereJournal = "journal.jsonl";

std::int64_t integer(const Json& line, const char* key) {
  return json_get<std::int64_t>(line, key, kWhereJournal);
}

std::string text(const Json& line, const char* key) {
  return json_get<std::string>(line, key, kWhereJournal);
}

std::vector<std::string> texts(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_array())
    fail(ErrorKind::data, "{}: {} must be an array", kWhereJournal, key);
  std::vector<std::string> all;
  for (const Json& one : *found) {
    if (!one.is_string()) fail(ErrorKind::data, "{}: {} must hold texts", kWhereJournal, key);
    all.push_back(one.get<std::string>());
  }
  return all;
}

/// Reads a step; null is -1.
std::int64_t step_or_none(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_null() ? -1 : integer(line, key);
}

LegStart start_in(const Json& line) {
  LegStart start;
  start.place = take_place(line, kWhereJournal);
  start.nodes = texts(line, "nodes");
  start.ranks = integer(line, "ranks");
  start.resumed_from = step_or_none(line, "resumed_from");
  if (line.contains("job_end")) start.job_end = json_get<double>(line, "job_end", kWhereJournal);
  const auto hashes = line.find("hashes");
  if (hashes == line.end() || !hashes->is_object())
    fail(ErrorKind::data, "{}: hashes must be an object", kWhereJournal);
  for (const auto& [name, value] : hashes->items())
    start.hashes[name] = text(*hashes, name.c_str());
  return start;
}

Decision decision_in(const Json& line) {
  Decision decision;
  decision.verdict = text(line, "verdict");
  decision.why = text(line, "why");
  decision.exit_code = static_cast<int>(integer(line, "exit_code"));
  const auto cause = line.find("root_cause");
  if (cause == line.end()) fail(ErrorKind::data, "{}: root_cause is missing", kWhereJournal);
  decision.root_cause = {integer(*cause, "rank"), text(*cause, "host"), text(*cause, "kind"),
                         text(*cause, "message")};
  decision.step_before = integer(line, "step_before");
  decision.step_after = integer(line, "step_after");
  decision.failures_in_a_row = integer(line, "failures_in_a_row");
  decision.exclude = texts(line, "exclude");
  decision.is_requeued = line.contains("is_requeued");
  return decision;
}

/// Parses one event into `leg`. Throws Error(data) for missing or invalid members. Ignores an
/// unknown event, which a newer version wrote; its time still counts.
void take_event(const std::string& event, double time, const Json& line, Leg& leg) {
  if (event == "start") {
    leg.start = start_in(line);
  } else if (event == "ready") {
    leg.ready = LegReady{integer(line, "step"), json_get<double>(line, "start_s", kWhereJournal)};
    leg.ready_at = time;
  } else if (event == "commit") {
    leg.committed = integer(line, "step");
    leg.committed_at = time;
  } else if (event == "request") {
    leg.requests.push_back({text(line, "want"), text(line, "by"), integer(line, "step")});
  } else if (event == "verdict") {
    leg.verdicts.push_back(take_verdict(line, kWhereJournal));
  } else if (event == "end") {
    leg.end = LegEnd{text(line, "state"), static_cast<int>(integer(line, "exit_code")),
                     integer(line, "step")};
    leg.ended_at = time;
  } else if (event == "decision") {
    leg.decision = decision_in(line);
    leg.decided_place = take_place(line, kWhereJournal);
  }
}

/// Returns the attempt of a line: the newest one, or a new one at the end.
Leg& leg_of(std::int64_t number, double time, JournalContent& content) {
  if (content.legs.empty() || number > content.legs.back().number) {
    content.legs.emplace_back();
    content.legs.back().number = number;
    content.legs.back().began_at = time;
  }
  return content.legs.back();
}

void put_start(Json& object, const LegStart& start) {
  put_place(object, start.place);
  object["nodes"] = start.nodes;
  object["ranks"] = start.ranks;
  object["hashes"] = start.hashes;
  object["resumed_from"] = start.resumed_from < 0 ? Json(nullptr) : Json(start.resumed_from);
  if (start.job_end) object["job_end"] = *start.job_end;
}

/// Parses one line without its line feed and adds it to `content`. If the line is incomplete, out
/// of order or not an event, changes nothing and returns false.
bool take_line(std::string_view line, JournalContent& content) {
  try {
    const Json json = parse_json(line, kWhereJournal);
    const std::int64_t seq = integer(json, "seq");
    const std::int64_t number = integer(json, "leg");
    const double time = json_get<double>(json, "time", kWhereJournal);
    const std::string event = text(json, "event");
    const std::int64_t newest = content.legs.empty() ? 0 : content.legs.back().number;
    if (number < 1) return false;
    if (number < newest) return true;  // the writer had lost the lock without noticing
    const bool overlaps = number > newest && seq <= content.lines;  // with lines of an older writer
    if (seq != content.lines + 1 && !overlaps) return false;
    Leg parsed;
    take_event(event, time, json, parsed);  // throws before anything is changed
    content.lines = seq;
    Leg& leg = leg_of(number, time, content);
    take_event(event, time, json, leg);
    leg.last_at = time;
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace

std::int64_t JournalContent::committed() const {
  std::int64_t newest = -1;
  for (const Leg& leg : legs) newest = std::max(newest, leg.committed);
  return newest;
}

std::string JournalContent::run_id() const {
  if (legs.empty()) return "";
  const Leg& first = legs.front();
  const bool has_host = first.start && !first.start->nodes.empty();
  return xxh3_128_hex(formatted("{} {} {}", number_text(first.began_at), first.place().job,
                                has_host ? first.start->nodes.front() : ""));
}

JournalContent read_journal(const std::filesystem::path& file) {
  JournalContent content;
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

void Journal::open(std::function<bool()> may_write) {
  open_newest_leg(std::move(may_write));
  begin_leg();
}

void Journal::open_newest_leg(std::function<bool()> may_write) {
  may_write_ = std::move(may_write);
  legs_ = recover().legs;
  leg_ = legs_.empty() ? 1 : legs_.back().number;
  open_ = true;
}

JournalContent Journal::recover() {
  JournalContent content = read_journal(file_);
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

void Journal::write_whole(const std::string& line) {
  torn_ = true;
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t wrote = ::write(fd_.get(), line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail_to_write("write", file_, errno);
    done += static_cast<std::size_t>(wrote);
  }
  torn_ = false;
}

void Journal::append(const char* event, std::int64_t leg, const Json& members) {
  if (!open_) return;
  // Waits until a wall clock time: ThreadSanitizer of GCC 12 does not know the call that waits for
  // a duration.
  const std::unique_lock lock(mutex_, std::chrono::system_clock::now() + kPatience);
  if (!lock.owns_lock() || !may_write_()) return;
  if (torn_) recover();
  Json line{{"seq", seq_ + 1}, {"time", unix_time_s()}, {"leg", leg}, {"event", event}};
  line.update(members);
  write_whole(json_line(line));
  ++seq_;
  if (::fdatasync(fd_.get()) != 0) fail_to_write("fsync", file_, errno);
}

void Journal::start(const LegStart& start) {
  Json members;
  put_start(members, start);
  append("start", leg_, members);
}

void Journal::ready(const LegReady& ready) {
  append("ready", leg_, {{"step", ready.step}, {"start_s", ready.start_s}});
}

void Journal::commit(std::int64_t step) {
  append("commit", leg_, {{"step", step}});
}

void Journal::request(const LegRequest& request) {
  append("request", leg_, {{"want", request.want}, {"by", request.by}, {"step", request.step}});
}

void Journal::verdict(const Verdict& verdict, std::int64_t leg) {
  Json members;
  put_verdict(members, verdict);
  append("verdict", leg, members);
}

void Journal::end(const LegEnd& end) {
  append("end", leg_, {{"state", end.state}, {"exit_code", end.exit_code}, {"step", end.step}});
}

void Journal::decision(const Decision& decision, const JobPlace& place) {
  Json members;
  put_decision(members, decision);
  put_place(members, place);
  append("decision", leg_, members);
}

void put_decision(Json& object, const Decision& decision) {
  object["verdict"] = decision.verdict;
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

}  // namespace trireme
