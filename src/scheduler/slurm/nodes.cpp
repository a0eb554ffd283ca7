#include "scheduler/slurm/nodes.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme {
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

bool is_up(const std::string& state) {
  for (const char* bad : {"down", "drain", "fail", "unk", "maint", "resv", "reboot"}) {
    if (state.starts_with(bad)) return false;
  }
  return state.find('*') == std::string::npos;
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

}  // namespace trireme
