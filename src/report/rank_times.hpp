#pragma once
#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::report {

/// The times of ranks.jsonl, in seconds per step.
inline constexpr std::array<std::string_view, 7> kRankTimes{
    "compute_s",      "data_wait_s", "other_s",     "peer_wait_s",
    "comm_exposed_s", "save_s",      "validation_s"};

/// The mean times of one rank over its lines of the newest attempt.
struct RankTimes {
  std::int64_t rank = 0;
  std::string host;  // "" if unknown
  std::int64_t lines = 0;
  std::array<double, kRankTimes.size()> mean_s{};  // order: kRankTimes
  double mem_peak_bytes = 0;                       // maximum over the lines
};

/// Reads ranks.jsonl. Returns one entry per rank in rank order; empty if the file does not exist.
/// Skips damaged lines.
std::vector<RankTimes> read_rank_times(const std::filesystem::path& file);

}  // namespace trireme::report
