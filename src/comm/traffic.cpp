#include "comm/traffic.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace trireme::comm {
namespace {

using Count = std::optional<std::uint64_t>;

Count minus(const Count& now, const Count& then) {
  if (!now || !then) return std::nullopt;
  return *now - *then;
}

Count plus(const Count& a, const Count& b) {
  if (!a || !b) return std::nullopt;
  return *a + *b;
}

}  // namespace

std::vector<TrafficRow> traffic_between(const std::vector<TrafficRow>& before,
                                        const std::vector<TrafficRow>& after) {
  std::vector<TrafficRow> rows;
  for (TrafficRow row : after) {
    const auto earlier = std::find_if(before.begin(), before.end(), [&](const TrafficRow& other) {
      return other.operation == row.operation && other.purpose == row.purpose;
    });
    if (earlier != before.end()) {
      row.count -= earlier->count;
      row.payload_bytes -= earlier->payload_bytes;
      row.moved_bytes = minus(row.moved_bytes, earlier->moved_bytes);
      row.messages = minus(row.messages, earlier->messages);
    }
    if (row.count > 0 || row.messages.value_or(0) > 0) rows.push_back(std::move(row));
  }
  return rows;
}

TrafficRow total_traffic(const std::vector<TrafficRow>& rows, std::string_view operation) {
  TrafficRow total;
  total.operation = operation;
  total.moved_bytes = 0;
  total.messages = 0;
  for (const TrafficRow& row : rows) {
    if (!operation.empty() && row.operation != operation) continue;
    total.count += row.count;
    total.payload_bytes += row.payload_bytes;
    total.moved_bytes = plus(total.moved_bytes, row.moved_bytes);
    total.messages = plus(total.messages, row.messages);
  }
  return total;
}

}  // namespace trireme::comm
