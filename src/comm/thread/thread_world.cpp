#include "comm/thread/thread_world.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "comm/p2p/group_communicator.hpp"
#include "core/error.hpp"

namespace trireme::comm {

/// One side (send or receive) of a message between threads. `done` is set after the copy, while the
/// mailbox is locked.
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

/// One mailbox per receiving rank. Sender and receiver meet there: the one that arrives second
/// copies the message, while the mailbox is locked.
class ThreadMailboxes {
 public:
  explicit ThreadMailboxes(int size);

  /// Adds a send or a receive, or completes it if the other side is already there.
  void put(const ThreadAddress& address, const std::shared_ptr<ThreadMessage>& message, bool sends);

  /// Removes a message without a match; its buffer is not touched afterwards.
  void withdraw(const ThreadAddress& address, const std::shared_ptr<ThreadMessage>& message);

  /// Sleeps until the state of `rank` has changed since its last pause, but at most a few
  /// milliseconds.
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

  std::vector<Mailbox> mailboxes_;
  std::vector<Bell> bells_;
  std::atomic<int> failed_ = -1;
};

ThreadMailboxes::ThreadMailboxes(int size)
    : mailboxes_(static_cast<std::size_t>(size)), bells_(static_cast<std::size_t>(size)) {}

void ThreadMailboxes::put(const ThreadAddress& address,
                          const std::shared_ptr<ThreadMessage>& message, bool sends) {
  Mailbox& mailbox = mailboxes_[static_cast<std::size_t>(address.to)];
  {
    const std::lock_guard lock(mailbox.mutex);
    Queues& queues = mailbox.queues[address];
    auto& others = sends ? queues.receives : queues.sends;
    if (others.empty()) {
      (sends ? queues.sends : queues.receives).push_back(message);
      return;
    }
    const auto match = others.front();
    others.pop_front();
    if (queues.sends.empty() && queues.receives.empty()) mailbox.queues.erase(address);
    ThreadMessage& sent = sends ? *message : *match;
    ThreadMessage& received = sends ? *match : *message;
    if (sent.bytes != received.bytes) {
      sent.error = received.error = formatted(
          "rank {} sends {} bytes where rank {} expects {}; the ranks called the operation with different sizes",
          address.from, sent.bytes, address.to, received.bytes);
    } else if (sent.bytes > 0) {
      std::memcpy(received.data, sent.data, sent.bytes);
    }
    sent.done = true;
    received.done = true;
  }
  ring(address.from);
  ring(address.to);
}

void ThreadMailboxes::withdraw(const ThreadAddress& address,
                               const std::shared_ptr<ThreadMessage>& message) {
  Mailbox& mailbox = mailboxes_[static_cast<std::size_t>(address.to)];
  const std::lock_guard lock(mailbox.mutex);
  const auto found = mailbox.queues.find(address);
  if (found == mailbox.queues.end()) return;
  std::erase(found->second.sends, message);
  std::erase(found->second.receives, message);
}

void ThreadMailboxes::ring(int rank) {
  Bell& bell = bells_[static_cast<std::size_t>(rank)];
  {
    const std::lock_guard lock(bell.mutex);
    bell.rung = true;
  }
  bell.changed.notify_one();
}

void ThreadMailboxes::pause(int rank) {
  Bell& bell = bells_[static_cast<std::size_t>(rank)];
  std::unique_lock lock(bell.mutex);
  bell.changed.wait_for(lock, std::chrono::milliseconds(5), [&] { return bell.rung; });
  bell.rung = false;
}

void ThreadMailboxes::fail(int rank) {
  int none = -1;
  failed_.compare_exchange_strong(none, rank);
  for (std::size_t r = 0; r < bells_.size(); ++r) ring(static_cast<int>(r));
}

namespace {

class ThreadTransfer final : public Transfer {
 public:
  ThreadTransfer(std::shared_ptr<ThreadMailboxes> mailboxes, ThreadAddress address,
                 std::shared_ptr<ThreadMessage> message)
      : mailboxes_(std::move(mailboxes)), address_(address), message_(std::move(message)) {}

  ThreadTransfer(const ThreadTransfer&) = delete;
  ThreadTransfer& operator=(const ThreadTransfer&) = delete;

  ~ThreadTransfer() override {
    if (!message_->done) mailboxes_->withdraw(address_, message_);
  }

  bool done() override {
    if (message_->done) {
      if (!message_->error.empty()) fail(ErrorKind::usage, "{}", message_->error);
      return true;
    }
    const int failed = mailboxes_->failed_rank();
    if (failed >= 0)
      fail(ErrorKind::comm, "rank {} of the thread world ended with an error", failed);
    return false;
  }

 private:
  const std::shared_ptr<ThreadMailboxes> mailboxes_;
  const ThreadAddress address_;
  const std::shared_ptr<ThreadMessage> message_;
};

class ThreadTransport final : public GroupTransport {
 public:
  ThreadTransport(std::shared_ptr<ThreadMailboxes> mailboxes, std::uint64_t group,
                  std::vector<int> world_ranks, int rank)
      : GroupTransport(group, std::move(world_ranks), rank), mailboxes_(std::move(mailboxes)) {}

  [[nodiscard]] const char* backend() const override { return "thread"; }

  [[nodiscard]] std::shared_ptr<GroupTransport> another(std::uint64_t group,
                                                        std::vector<int> world_ranks,
                                                        int rank) const override {
    return std::make_shared<ThreadTransport>(mailboxes_, group, std::move(world_ranks), rank);
  }

  TransferPtr receive(int peer, int tag, void* data, std::uint64_t bytes) override {
    return start({group(), world_rank(peer), world_rank(rank()), tag}, data, bytes, false);
  }

  void pause(double) override { mailboxes_->pause(world_rank(rank())); }

 protected:
  TransferPtr start_send(int peer, int tag, const void* data, std::uint64_t bytes) override {
    return start({group(), world_rank(rank()), world_rank(peer), tag}, const_cast<void*>(data),
                 bytes, true);
  }

 private:
  TransferPtr start(const ThreadAddress& address, void* data, std::uint64_t bytes, bool sends) {
    auto message = std::make_shared<ThreadMessage>();
    message->data = data;
    message->bytes = bytes;
    mailboxes_->put(address, message, sends);
    return std::make_unique<ThreadTransfer>(mailboxes_, address, std::move(message));
  }

  const std::shared_ptr<ThreadMailboxes> mailboxes_;
};

}  // namespace

ThreadWorld::ThreadWorld(int size, CommOptions options)
    : mailboxes_(std::make_shared<ThreadMailboxes>(std::max(size, 0))),
      size_(size),
      options_(std::move(options)) {
  if (size < 1)
    ::trireme::fail(ErrorKind::usage, "thread world of {} ranks, must be at least 1", size);
}

ThreadWorld::~ThreadWorld() = default;

std::unique_ptr<Communicator> ThreadWorld::communicator(int rank) {
  if (rank < 0 || rank >= size_)
    ::trireme::fail(ErrorKind::usage, "rank {} of a thread world, must be in [0, {})", rank, size_);
  std::vector<int> ranks(static_cast<std::size_t>(size_));
  std::iota(ranks.begin(), ranks.end(), 0);
  return make_group("world",
                    std::make_shared<ThreadTransport>(mailboxes_, 0, std::move(ranks), rank),
                    std::make_shared<Engine>(), options_);
}

void ThreadWorld::fail(int rank) {
  mailboxes_->fail(rank);
}

void run_ranks(int size, const std::function<void(Communicator&)>& body, CommOptions options) {
  ThreadWorld world(size, std::move(options));
  std::mutex mutex;
  std::exception_ptr first;  // the first error is the cause of the later ones
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        try {
          const auto communicator = world.communicator(rank);
          body(*communicator);
        } catch (...) {
          {
            const std::lock_guard lock(mutex);
            if (!first) first = std::current_exception();
          }
          world.fail(rank);
        }
      });
    }
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace trireme::comm
