#include "scheduler/slurm/output.hpp"

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <map>
#include <tuple>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme::scheduler {
namespace {

/// Reads type and number of GPUs: "gpu:a100:8(S:0-1),nic:2" is a100 and 8, "gpu:4" is "" and 4.
void take_gpus(const std::string& gres, NodeKind& kind) {
  for (std::string one : split(gres, ',')) {
    one = one.substr(0, one.find('('));
    const std::vector<std::string> parts = split(one, ':');
    if (parts.front() != "gpu" || parts.size() < 2) continue;
    kind.gpus += parse_integer(parts.back()).value_or(0);
    if (parts.size() > 2) kind.gpu_type = parts[1];
  }
}

/// Returns true if a node with this compact state can run jobs. Source: Slurm,
/// src/common/slurm_protocol_defs.c, node_state_string_compact.
bool is_up(const std::string& state) {
  for (const char* bad :
       {"down", "drain", "drng", "fail", "unk", "inval", "maint", "resv", "boot", "pow_d"}) {
    if (state.starts_with(bad)) return false;
  }
  return state.find('*') == std::string::npos;
}

constexpr std::int64_t kMostNodes = 1 << 20;

/// Splits the list at commas outside brackets.
std::vector<std::string> outer_parts(std::string_view list) {
  std::vector<std::string> parts(1);
  bool inside = false;
  for (const char c : list) {
    if (c == '[') inside = true;
    if (c == ']') inside = false;
    if (c == ',' && !inside) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

/// Expands "07-09" to 07, 08, 09; none for another form.
std::optional<std::vector<std::string>> numbers_of(const std::string& range) {
  const std::vector<std::string> ends = split(range, '-');
  const auto first = parse_integer(ends.front());
  const auto last = parse_integer(ends.back());
  if (ends.size() > 2 || !first || !last || *first < 0 || *last - *first >= kMostNodes)
    return std::nullopt;
  std::vector<std::string> numbers;
  for (std::int64_t number = *first; number <= *last; ++number) {
    std::string digits = std::to_string(number);
    if (digits.size() < ends.front().size())
      digits.insert(0, ends.front().size() - digits.size(), '0');
    numbers.push_back(std::move(digits));
  }
  return numbers;
}

/// Appends the names of one part, which may have several brackets: "r[0-1]n[0-3]". Returns false if
/// the part has another form.
bool expand_part(const std::string& before, const std::string& part,
                 std::vector<std::string>& names) {
  const std::size_t open = part.find('[');
  if (open == std::string::npos) {
    if ((before + part).empty()) return false;
    names.push_back(before + part);
    return static_cast<std::int64_t>(names.size()) <= kMostNodes;
  }
  const std::size_t close = part.find(']', open);
  if (close == std::string::npos) return false;
  for (const std::string& range : split(part.substr(open + 1, close - open - 1), ',')) {
    const auto numbers = numbers_of(range);
    if (!numbers) return false;
    for (const std::string& number : *numbers) {
      if (!expand_part(before + part.substr(0, open) + number, part.substr(close + 1), names))
        return false;
    }
  }
  return true;
}

/// Parses the local time of scontrol, "2026-01-31T13:00:00"; none for other text such as "Unknown".
std::optional<double> local_time(const std::string& text) {
  std::tm time{};
  time.tm_isdst = -1;
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &time);
  if (end == nullptr || *end != '\0') return std::nullopt;
  const std::time_t seconds = ::mktime(&time);
  return seconds == -1 ? std::nullopt : std::optional(static_cast<double>(seconds));
}

}  // namespace

std::vector<std::string> sinfo_words() {
  return {"sinfo", "-h", "-N", "-o", "%R|%P|%c|%m|%G|%l|%t"};
}

std::vector<NodeKind> read_nodes(std::string_view sinfo) {
  std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::string>, NodeKind> kinds;
  for (const std::string& line : split(sinfo, '\n')) {
    const std::vector<std::string> words = split(line, '|');
    if (words.size() != 7) continue;
    const auto cpus = parse_integer(words[2]);
    if (!cpus) continue;
    const std::int64_t memory_mb = parse_integer(words[3]).value_or(0);
    NodeKind& kind = kinds[{words[0], *cpus, memory_mb, words[4]}];
    if (kind.partition.empty()) {
      kind.partition = words[0];
      kind.is_default = words[1].ends_with('*');
      kind.cpus = *cpus;
      kind.memory_mb = memory_mb;
      kind.limit_s = slurm_time_s(words[5]);
      take_gpus(words[4], kind);
    }
    if (is_up(words[6])) ++kind.nodes;
  }
  std::vector<NodeKind> all;
  for (const auto& [key, kind] : kinds) all.push_back(kind);
  return all;
}

std::optional<double> slurm_time_s(std::string_view text) {
  if (text == "infinite" || text == "UNLIMITED" || text == "n/a") return std::nullopt;
  const std::size_t dash = text.find('-');
  double days = 0;
  bool valid = !text.empty();
  if (dash != std::string_view::npos) {
    const auto number = parse_integer(text.substr(0, dash));
    valid = number && *number >= 0;
    days = static_cast<double>(number.value_or(0));
  }
  const std::string_view clock = dash == std::string_view::npos ? text : text.substr(dash + 1);
  std::vector<double> parts;
  for (const std::string& part : split(clock, ':')) {
    const auto number = parse_integer(part);
    valid = valid && number && *number >= 0;
    parts.push_back(static_cast<double>(number.value_or(0)));
  }
  if (!valid || parts.size() > 3)
    fail(ErrorKind::usage, "--time {}, must be minutes, or like 30:00, 4:00:00, 2-12 or 2-12:00:00",
         text);
  parts.resize(3, 0);
  const bool begins_with_hours =
      dash != std::string_view::npos || std::count(clock.begin(), clock.end(), ':') == 2;
  const double seconds =
      begins_with_hours ? 3600 * parts[0] + 60 * parts[1] + parts[2] : 60 * parts[0] + parts[1];
  return 86400 * days + seconds;
}

std::vector<std::string> expand_nodes(std::string_view list) {
  std::vector<std::string> names;
  for (const std::string& part : outer_parts(list)) {
    if (!expand_part("", part, names)) return {};
  }
  return names;
}

std::vector<StepNode> step_nodes(std::string_view list, std::string_view tasks) {
  std::vector<StepNode> nodes;
  for (std::string& name : expand_nodes(list)) nodes.push_back({std::move(name), 0});
  std::size_t next = 0;
  for (const std::string& part : split(tasks, ',')) {
    const std::size_t open = part.find("(x");
    const auto count = parse_integer(part.substr(0, open));
    const bool repeats = open != std::string::npos && part.ends_with(')');
    const auto times = repeats ? parse_integer(part.substr(open + 2, part.size() - open - 3))
                               : std::optional<std::int64_t>(1);
    if (!count || *count < 0 || *count >= kMostNodes || !times || *times < 0 ||
        next + static_cast<std::size_t>(*times) > nodes.size())
      return {};
    for (std::int64_t i = 0; i < *times; ++i) nodes[next++].tasks = static_cast<int>(*count);
  }
  if (next != nodes.size()) return {};
  return nodes;
}

std::string word_of(std::string_view line, std::string_view key) {
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = std::min(line.find_first_of(" \n", at), line.size());
    const std::string_view word = line.substr(at, end - at);
    if (word.size() > key.size() && word.starts_with(key) && word[key.size()] == '=')
      return std::string(word.substr(key.size() + 1));
    at = end + 1;
  }
  return "";
}

SchedulerJob read_slurm_job(std::string_view text) {
  SchedulerJob job;
  job.state = word_of(text, "JobState");
  job.known = !job.state.empty();
  job.id = word_of(text, "JobId");
  job.reason = word_of(text, "Reason");
  job.restarts = parse_integer(word_of(text, "Restarts")).value_or(0);
  job.may_requeue = word_of(text, "Requeue") != "0";
  const std::string preempted = word_of(text, "PreemptTime");
  const bool in_this_start =
      !preempted.empty() && preempted != "None" &&
      preempted >= word_of(text, "StartTime");  // ISO 8601 times sort as text
  job.was_preempted = job.state == "PREEMPTED" || in_this_start;
  job.end_s = local_time(word_of(text, "EndTime"));
  job.error_file = word_of(text, "StdErr");
  return job;
}

SchedulerAnswer read_scheduler_answer(int code, std::string_view output) {
  SchedulerAnswer answer;
  if (code != 0) {
    answer.answered = output.find("Invalid job id") != std::string_view::npos;
    return answer;
  }
  answer.answered = true;
  for (const std::string& line : split(output, '\n')) {
    const SchedulerJob job = read_slurm_job(line);
    if (job.known) answer.jobs.push_back(job);
  }
  return answer;
}

std::vector<std::string> sacct_words(const std::string& job) {
  // -D lists a requeued job once for each start.
  return {"env",      "SLURM_TIME_FORMAT=%s", "sacct", "-X", "-D", "-n", "-P", "-j", job,
          "--format", "Submit,Start,End"};
}

std::vector<JobTimes> read_job_times(std::string_view sacct) {
  std::vector<JobTimes> all;
  for (const std::string& line : split(sacct, '\n')) {
    const std::vector<std::string> parts = split(line, '|');
    if (parts.size() != 3) continue;
    const JobTimes times{parse_number(parts[0]), parse_number(parts[1]), parse_number(parts[2])};
    if (times.submit_s) all.push_back(times);
  }
  return all;
}

}  // namespace trireme::scheduler
