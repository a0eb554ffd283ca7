#pragma once
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/options.hpp"

namespace trireme {

/// Flight recorder of one group: a bounded ring of its last operations, and byte counters.
///
/// Bytes counted as sent by this rank, n = ranks of the group, b = payload in bytes of this rank:
///   all_reduce      2 (n-1) b / n          ring
///   reduce_scatter  (n-1) b / n            ring; b = the whole input
///   all_gather      (n-1) b                ring; b = this rank's part
///   broadcast       b, the rank before the root 0   ring pipeline
///   all_to_all, exchange   bytes for other ranks    pairwise
///   barrier         0
/// Safe from several threads (a device watchdog completes records).
class Recorder {
 public:
  Recorder(std::string group, std::size_t length, std::shared_ptr<Activity> activity);

  /// Returns the sequence number, from 1.
  std::uint64_t begin(const char* operation, std::string_view tag, std::uint64_t payload,
                      std::uint64_t sent);
  void complete(std::uint64_t sequence);

  [[nodiscard]] std::vector<CommRecord> recent() const;
  [[nodiscard]] ByteCounters counters() const;

  [[nodiscard]] const std::shared_ptr<Activity>& activity() const { return activity_; }

 private:
  const std::string group_;
  const std::size_t length_;
  const std::shared_ptr<Activity> activity_;
  mutable std::mutex mutex_;
  std::vector<CommRecord> ring_;  // sequence s lives at (s - 1) % length_
  std::uint64_t last_ = 0;
  ByteCounters counters_;
};

}  // namespace trireme
