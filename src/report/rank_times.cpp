#include "report/rank_times.hpp"

#include <simdjson.h>

#include <algorithm>
#include <fstream>
#include <map>

namespace trireme::report {

std::vector<RankTimes> read_rank_times(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  simdjson::dom::parser parser;
  std::map<std::int64_t, RankTimes> ranks;
  std::int64_t attempt = -1;
  for (std::string line; std::getline(in, line);) {
    simdjson::dom::object object;
    std::int64_t rank = 0;
    std::int64_t its_attempt = 0;
    if (parser.parse(line).get(object) != simdjson::SUCCESS ||
        object["rank"].get(rank) != simdjson::SUCCESS || rank < 0)
      continue;
    if (object["attempt"].get(its_attempt) != simdjson::SUCCESS) its_attempt = 0;
    if (its_attempt < attempt) continue;
    if (its_attempt > attempt) ranks.clear();
    attempt = its_attempt;
    RankTimes& times = ranks[rank];
    times.rank = rank;
    ++times.lines;
    const auto number = [&](std::string_view key) {
      double value = 0;
      return object[key].get(value) == simdjson::SUCCESS ? value : 0;
    };
    for (std::size_t i = 0; i < kRankTimes.size(); ++i)
      times.mean_s[i] +=
          (number(kRankTimes[i]) - times.mean_s[i]) / static_cast<double>(times.lines);
    times.mem_peak_bytes = std::max(times.mem_peak_bytes, number("mem_peak_bytes"));
    if (std::string_view host; object["host"].get(host) == simdjson::SUCCESS) times.host = host;
  }
  std::vector<RankTimes> list;
  for (auto& [rank, times] : ranks) list.push_back(std::move(times));
  return list;
}

}  // namespace trireme::report
