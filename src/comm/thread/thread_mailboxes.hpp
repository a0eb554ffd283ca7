#pragma once
#include <atomic>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace trireme {

/// One side of a message between threads. `done` is set under the mailbox lock, after the copy.
struct ThreadMessage {
  void* data = nullptr;
  std::uint64_t bytes = 0;
  std::atomic<bool> done = false;
  std::string error;  // valid after `done`
};

/// The address of a message: group, sender and receiver (world ranks), tag.
struct ThreadAddress {
  std::uint64_t group = 0;
  int from = 0;
  int to = 0;
  int tag = 0;
  auto operator<=>(const ThreadAddress&) const = default;
};

/// One mailbox per receiving rank. The second of sender and receiver copies under the mailbox lock.
class ThreadMailboxes {
 public:
  explicit ThreadMailboxes(int size);

  void send(const ThreadAddress& address, const std::shared_ptr<ThreadMessage>& message);
  void receive(const ThreadAddress& address, const std::shared_ptr<ThreadMessage>& message);

  /// Removes a message without a match; its buffer is not touched afterwards.
  void withdraw(const ThreadAddress& address, const std::shared_ptr<ThreadMessage>& message);

  /// Sleeps until something happened to `rank` since its last pause, at most a few milliseconds.
  void pause(int rank);

  void fail(int rank);

  [[nodiscard]] int failed_rank() const { return failed_.load(); }  // -1: none

 private:
  struct Queues {
    std::deque<std::shared_ptr<ThreadMessage>> sends;
    std::deque<std::shared_ptr<ThreadMessage>> receives;
  };

  struct Mailbox {
    std::mutex mutex;
    std::map<ThreadAddress, Queues> queues;
  };

  struct Bell {
    std::mutex mutex;
    std::condition_variable changed;
    bool rung = false;
  };

  void ring(int rank);
  void put(const ThreadAddress& address, const std::shared_ptr<ThreadMessage>& message,
           std::deque<std::shared_ptr<ThreadMessage>> Queues::*own,
           std::deque<std::shared_ptr<ThreadMessage>> Queues::*other);

  std::vector<Mailbox> mailboxes_;
  std::vector<Bell> bells_;
  std::atomic<int> failed_ = -1;
};

}  // namespace trireme
