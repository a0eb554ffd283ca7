#include "comm/recorder.hpp"

#include <algorithm>

#include "comm/liveness/activity.hpp"

namespace trireme::comm {
namespace {

/// Removes the number at the end: "grads bucket 3" becomes "grads bucket"; "bf16" and "7" stay.
std::string_view purpose_of(std::string_view tag) {
  const std::size_t last = tag.find_last_not_of("0123456789");
  if (last == std::string_view::npos || tag[last] != ' ' || last + 1 == tag.size()) return tag;
  return tag.substr(0, last);
}

}  // namespace

Recorder::Recorder(std::string group, std::size_t length, std::shared_ptr<Activity> activity)
    : group_(std::move(group)),
      length_(std::max<std::size_t>(length, 1)),
      activity_(std::move(activity)) {}

Recorder::Begun Recorder::begin(const char* operation, std::string_view tag, std::uint64_t payload,
                                bool counted) {
  const std::lock_guard lock(mutex_);
  ++last_;
  const std::size_t slot = (last_ - 1) % length_;
  if (ring_.size() <= slot) ring_.resize(slot + 1);
  ring_[slot] = {last_, operation, std::string(tag), payload, false};
  Row& mine = rows_[operation][std::string(purpose_of(tag))];
  ++mine.count;
  mine.payload_bytes += payload;
  mine.counted = mine.counted && counted;
  if (activity_) activity_->begin(group_, operation, tag, last_);
  return {last_, &mine.sent};
}

void Recorder::complete(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  auto& record = ring_[(sequence - 1) % length_];
  if (record.sequence == sequence) record.complete = true;
  if (activity_) activity_->complete(group_, sequence);
}

std::vector<CommRecord> Recorder::recent() const {
  const std::lock_guard lock(mutex_);
  std::vector<CommRecord> records(ring_);
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.sequence < b.sequence; });
  return records;
}

std::vector<TrafficRow> Recorder::traffic() const {
  const std::lock_guard lock(mutex_);
  std::vector<TrafficRow> all;
  for (const auto& [operation, purposes] : rows_) {
    for (const auto& [purpose, row] : purposes) {
      TrafficRow& made = all.emplace_back();
      made.operation = operation;
      made.purpose = purpose;
      made.count = row.count;
      made.payload_bytes = row.payload_bytes;
      if (!row.counted) continue;
      made.moved_bytes = row.sent.bytes.load();
      made.messages = row.sent.messages.load();
    }
  }
  return all;
}

}  // namespace trireme::comm
