#include "job/journal_lines.hpp"

#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"

namespace trireme {
namespace {

constexpr const char* kWhere = "journal.jsonl";

std::int64_t integer(const Json& line, const char* key) {
  return json_get<std::int64_t>(line, key, kWhere);
}

std::string text(const Json& line, const char* key) {
  return json_get<std::string>(line, key, kWhere);
}

std::vector<std::string> texts(const Json& line, const char* key) {
  const auto found = line.find(key);
  if (found == line.end() || !found->is_array())
    fail(ErrorKind::data, "{}: {} must be an array", kWhere, key);
  std::vector<std::string> all;
  for (const Json& one : *found) {
    if (!one.is_string()) fail(ErrorKind::data, "{}: {} must hold texts", kWhere, key);
    all.push_back(one.get<std::string>());
  }
  return all;
}

/// null: -1.
std::int64_t step_or_none(const Json& line, const char* key) {
  const auto found = line.find(key);
  return found != line.end() && found->is_null() ? -1 : integer(line, key);
}

LegStart start_in(const Json& line) {
  LegStart start;
  start.place = take_place(line, kWhere);
  start.nodes = texts(line, "nodes");
  start.ranks = integer(line, "ranks");
  start.resumed_from = step_or_none(line, "resumed_from");
  if (line.contains("job_end")) start.job_end = json_get<double>(line, "job_end", kWhere);
  const auto hashes = line.find("hashes");
  if (hashes == line.end() || !hashes->is_object())
    fail(ErrorKind::data, "{}: hashes must be an object", kWhere);
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
  if (cause == line.end()) fail(ErrorKind::data, "{}: root_cause is missing", kWhere);
  decision.root_cause = {integer(*cause, "rank"), text(*cause, "host"), text(*cause, "kind"),
                         text(*cause, "message")};
  decision.step_before = integer(line, "step_before");
  decision.step_after = integer(line, "step_after");
  decision.failures_in_a_row = integer(line, "failures_in_a_row");
  decision.exclude = texts(line, "exclude");
  decision.is_requeued = line.contains("is_requeued");
  return decision;
}

/// Throws Error(data) for members that are not as they must be. Unknown events are kept as a sign of
/// life alone: a newer version wrote them.
void take_event(const std::string& event, double time, const Json& line, Leg& leg) {
  if (event == "start") {
    leg.start = start_in(line);
  } else if (event == "ready") {
    leg.ready = LegReady{integer(line, "step"), json_get<double>(line, "start_s", kWhere)};
    leg.ready_at = time;
  } else if (event == "commit") {
    leg.committed = integer(line, "step");
    leg.committed_at = time;
  } else if (event == "request") {
    leg.requests.push_back({text(line, "want"), text(line, "by"), integer(line, "step")});
  } else if (event == "verdict") {
    leg.verdicts.push_back(take_verdict(line, kWhere));
  } else if (event == "end") {
    leg.end = LegEnd{text(line, "state"), static_cast<int>(integer(line, "exit_code")),
                     integer(line, "step")};
    leg.ended_at = time;
  } else if (event == "decision") {
    leg.decision = decision_in(line);
    leg.decided_place = take_place(line, kWhere);
  }
}

/// The leg of a line: the newest one, a verdict's own, or a new one at the end.
Leg& leg_of(std::int64_t number, double time, JournalContent& content) {
  if (content.legs.empty() || number > content.legs.back().number) {
    content.legs.emplace_back();
    content.legs.back().number = number;
    content.legs.back().began_at = time;
  }
  return content.legs.back();
}

}  // namespace

void put_start(Json& object, const LegStart& start) {
  put_place(object, start.place);
  object["nodes"] = start.nodes;
  object["ranks"] = start.ranks;
  object["hashes"] = start.hashes;
  object["resumed_from"] = start.resumed_from < 0 ? Json(nullptr) : Json(start.resumed_from);
  if (start.job_end) object["job_end"] = *start.job_end;
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

bool take_line(std::string_view line, JournalContent& content) {
  try {
    const Json json = parse_json(line, kWhere);
    const std::int64_t seq = integer(json, "seq");
    const std::int64_t number = integer(json, "leg");
    const double time = json_get<double>(json, "time", kWhere);
    const std::string event = text(json, "event");
    const std::int64_t newest = content.legs.empty() ? 0 : content.legs.back().number;
    if (number < 1) return false;
    if (number < newest) return true;  // of a writer that had not noticed that it was fenced
    const bool overlaps = number > newest && seq <= content.lines;  // with such a one's lines
    if (seq != content.lines + 1 && !overlaps) return false;
    Leg parsed;
    take_event(event, time, json, parsed);  // whole, before anything is changed
    content.lines = seq;
    Leg& leg = leg_of(number, time, content);
    take_event(event, time, json, leg);
    leg.last_at = time;
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace trireme
