#include "comm/recorder.hpp"

#include <algorithm>

#include "comm/liveness/activity.hpp"

namespace trireme {

Recorder::Recorder(std::string group, std::size_t length, std::shared_ptr<Activity> activity)
    : group_(std::move(group)),
      length_(std::max<std::size_t>(length, 1)),
      activity_(std::move(activity)) {}

std::uint64_t Recorder::begin(const char* operation, std::string_view tag, std::uint64_t payload,
                              std::uint64_t sent) {
  const std::lock_guard lock(mutex_);
  ++last_;
  const std::size_t slot = (last_ - 1) % length_;
  if (ring_.size() <= slot) ring_.resize(slot + 1);
  ring_[slot] = {last_, operation, std::string(tag), payload, false};
  ++counters_.operations;
  counters_.payload += payload;
  counters_.sent += sent;
  if (activity_) activity_->begin(group_, operation, tag, last_);
  return last_;
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

ByteCounters Recorder::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace trireme
