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

namespace trireme {

/// What a rank sent to others for one purpose; added to where messages are sent.
struct SentCount {
  std::atomic<std::uint64_t> bytes = 0;
  std::atomic<std::uint64_t> messages = 0;

  void add(std::uint64_t message_bytes) {
    bytes.fetch_add(message_bytes, std::memory_order_relaxed);
    messages.fetch_add(1, std::memory_order_relaxed);
  }
};

/// Flight recorder of one group: a bounded ring of its last operations, and what all of them moved
/// by operation and purpose. It knows no algorithm: what should be moved is in volume.hpp.
/// Safe from several threads (a device watchdog completes records).
class Recorder {
 public:
  Recorder(std::string group, std::size_t length, std::shared_ptr<Activity> activity);

  struct Begun {
    std::uint64_t sequence;  // from 1
    SentCount* sent;         // lives as long as the recorder
  };

  /// counted: what is sent for this call will be added to Begun::sent.
  Begun begin(const char* operation, std::string_view tag, std::uint64_t payload, bool counted);
  void complete(std::uint64_t sequence);

  [[nodiscard]] std::vector<CommRecord> recent() const;
  [[nodiscard]] std::vector<TrafficRow> traffic() const;

  [[nodiscard]] const std::shared_ptr<Activity>& activity() const { return activity_; }

 private:
  struct Row {
    std::uint64_t count = 0;
    std::uint64_t payload_bytes = 0;
    bool counted = true;  // every call so far
    SentCount sent;
  };

  using Purposes = std::map<std::string, Row, std::less<>>;

  Row& row(std::string_view operation, std::string_view purpose);

  const std::string group_;
  const std::size_t length_;
  const std::shared_ptr<Activity> activity_;
  mutable std::mutex mutex_;
  std::vector<CommRecord> ring_;  // sequence s lives at (s - 1) % length_
  std::uint64_t last_ = 0;
  std::map<std::string, Purposes, std::less<>> rows_;  // by operation; nodes stay where they are
};

}  // namespace trireme
