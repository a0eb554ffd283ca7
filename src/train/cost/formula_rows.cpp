#include "train/cost/formula_rows.hpp"

#include <algorithm>
#include <numeric>

#include "comm/p2p/volume.hpp"

namespace trireme {

void FormulaRows::add(const char* operation, const char* purpose, std::int64_t times,
                      std::int64_t payload) const {
  if (size_ == 1 || times == 0) return;
  add_sent(operation, purpose, times, payload, sent_bytes(operation, size_, rank_, u64(payload)));
}

void FormulaRows::add_sent(const char* operation, const char* purpose, std::int64_t times,
                           std::int64_t payload, std::uint64_t sent) const {
  if (size_ == 1 || times == 0) return;
  const auto same = std::find_if(rows_.begin(), rows_.end(), [&](const CollectiveRow& row) {
    return row.group == name_ && row.operation == operation && row.purpose == purpose;
  });
  CollectiveRow& row = same != rows_.end()
                           ? *same
                           : rows_.emplace_back(CollectiveRow{name_, size_, operation, purpose});
  row.count += u64(times);
  row.payload_bytes += u64(times * payload);
  row.moved_bytes = row.moved_bytes.value_or(0) + u64(times) * sent;
}

void FormulaRows::add_calls(const char* operation, const char* purpose, std::int64_t times) const {
  if (size_ == 1 || times == 0) return;
  CollectiveRow& row = rows_.emplace_back(CollectiveRow{name_, size_, operation, purpose});
  row.count = u64(times);
}

void FormulaRows::add_all_to_all(const char* purpose, std::int64_t times,
                                 const std::vector<std::uint64_t>& parts) const {
  const auto payload = std::accumulate(parts.begin(), parts.end(), std::uint64_t{0});
  add_sent("all_to_all", purpose, times, static_cast<std::int64_t>(payload),
           sent_bytes(rank_, parts));
}

}  // namespace trireme
