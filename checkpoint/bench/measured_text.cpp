#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "checkpoint/bench/measure.hpp"
#include "core/files/json_lines.hpp"

namespace trireme::checkpoint {
namespace {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

/// Returns the speed relative to `raw` for each repeat; 1 means equally fast.
std::vector<double> ratios(const std::vector<double>& ours, const std::vector<double>& raw) {
  std::vector<double> result;
  for (std::size_t i = 0; i < ours.size(); ++i) result.push_back(raw[i] / ours[i]);
  return result;
}

double mb_per_s(const MeasuredCheckpoint& measured, const std::vector<double>& seconds) {
  return static_cast<double>(measured.bytes) / 1e6 / median(seconds);
}

std::string row(const char* name, const MeasuredCheckpoint& measured,
                const std::vector<double>& ours, const std::vector<double>& raw, double cpu_s,
                double raw_cpu_s) {
  const std::vector<double> factors = ratios(ours, raw);
  const auto [low, high] = std::minmax_element(factors.begin(), factors.end());
  const double gb = static_cast<double>(measured.bytes) / 1e9;
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(),
                "%-20s %7.0f MB/s, raw %7.0f MB/s, ratio %.2f (%.2f to %.2f); CPU s/GB %.2f, "
                "raw %.2f\n",
                name, mb_per_s(measured, ours), mb_per_s(measured, raw), median(factors), *low,
                *high, cpu_s / gb, raw_cpu_s / gb);
  return text.data();
}

}  // namespace

std::string measured_text(const MeasuredCheckpoint& measured) {
  std::array<char, 256> text{};
  std::snprintf(text.data(), text.size(), "%.0f MB on %d rank%s, median of %zu\n",
                static_cast<double>(measured.bytes) / 1e6, measured.ranks,
                measured.ranks == 1 ? "" : "s", measured.save_s.size());
  std::string result = text.data();
  result += row("save", measured, measured.save_s, measured.raw_write_s, measured.save_cpu_s,
                measured.raw_write_cpu_s);
  result += row("verified load, cold", measured, measured.load_s, measured.raw_read_s,
                measured.load_cpu_s, measured.raw_read_cpu_s);
  std::snprintf(
      text.data(), text.size(),
      "%-20s %.4f s without work, the step beside it %+.4f s; memory kept %.0f MB per rank\n",
      "stall behind", median(measured.stall_s), median(measured.step_extra_s),
      static_cast<double>(measured.copy_bytes) / 1e6);
  return result + text.data();
}

std::string measured_json(const MeasuredCheckpoint& measured) {
  Json json;
  json["bytes"] = measured.bytes;
  json["ranks"] = measured.ranks;
  json["repeats"] = measured.save_s.size();
  json["save_mb_per_s"] = mb_per_s(measured, measured.save_s);
  json["raw_write_mb_per_s"] = mb_per_s(measured, measured.raw_write_s);
  json["save_to_raw"] = median(ratios(measured.save_s, measured.raw_write_s));
  json["load_mb_per_s"] = mb_per_s(measured, measured.load_s);
  json["raw_read_mb_per_s"] = mb_per_s(measured, measured.raw_read_s);
  json["load_to_raw"] = median(ratios(measured.load_s, measured.raw_read_s));
  json["stall_s"] = median(measured.stall_s);
  json["step_extra_s"] = median(measured.step_extra_s);
  json["copy_bytes"] = measured.copy_bytes;
  json["save_cpu_s"] = measured.save_cpu_s;
  json["raw_write_cpu_s"] = measured.raw_write_cpu_s;
  json["load_cpu_s"] = measured.load_cpu_s;
  json["raw_read_cpu_s"] = measured.raw_read_cpu_s;
  json["save_s"] = measured.save_s;
  json["raw_write_s"] = measured.raw_write_s;
  json["load_s"] = measured.load_s;
  json["raw_read_s"] = measured.raw_read_s;
  json["all_stall_s"] = measured.stall_s;
  json["all_step_extra_s"] = measured.step_extra_s;
  return json_line(json);
}

}  // namespace trireme::checkpoint
