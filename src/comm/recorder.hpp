#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/options.hpp"

namespace trireme::comm {

/// Counts the messages that this rank sends for one purpose. The code that sends a message calls
/// add().
struct SentCount {
  std::atomic<std::uint64_t> bytes = 0;
  std::atomic<std::uint64_t> messages = 0;

  void add(std::uint64_t message_bytes) {
    bytes.fetch_add(message_bytes, std::memory_order_relaxed);
    messages.fetch_add(1, std::memory_order_relaxed);
  }
};

/// Flight recorder of one group: a bounded ring of its last operations, and totals by operation and
/// purpose. It only counts; volume.hpp computes the expected traffic. Thread-safe, because the
/// NcclWatch thread completes records.
class Recorder {
 public:
  Recorder(std::string group, std::size_t length, std::shared_ptr<Activity> activity);

  struct Begun {
    std::uint64_t sequence;  // from 1
    SentCount* sent;         // valid as long as the recorder
  };

  /// Records the start of an operation. `counted` means that the backend will add the messages to
  /// Begun::sent.
  Begun begin(const char* operation, std::string_view tag, std::uint64_t payload, bool counted);
  void complete(std::uint64_t sequence);

  [[nodiscard]] std::vector<CommRecord> recent() const;
  [[nodiscard]] std::vector<TrafficRow> traffic() const;

  [[nodiscard]] const std::shared_ptr<Activity>& activity() const { return activity_; }

 private:
  struct Row {
    std::uint64_t count = 0;
    std::uint64_t payload_bytes = 0;
    bool counted = true;  // true if every call so far was counted
    SentCount sent;
  };

  const std::string group_;
  const std::size_t length_;
  const std::shared_ptr<Activity> activity_;
  mutable std::mutex mutex_;
  std::vector<CommRecord> ring_;  // sequence s is at (s - 1) % length_
  std::uint64_t last_ = 0;
  // The key is the operation. Pointers to map nodes stay valid.
  std::map<std::string, std::map<std::string, Row>> rows_;
};

}  // namespace trireme::comm
