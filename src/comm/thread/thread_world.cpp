#include "comm/thread/thread_world.hpp"

#include <exception>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "comm/p2p/group_communicator.hpp"
#include "comm/thread/thread_mailboxes.hpp"
#include "core/error.hpp"

namespace trireme {
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
    if (failed >= 0) {
      fail(ErrorKind::comm, "rank {} of the thread world ended with an error", failed);
    }
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
    const ThreadAddress address{group(), world_rank(peer), world_rank(rank()), tag};
    auto message = std::make_shared<ThreadMessage>();
    message->data = data;
    message->bytes = bytes;
    mailboxes_->receive(address, message);
    return std::make_unique<ThreadTransfer>(mailboxes_, address, std::move(message));
  }

  void pause(double) override { mailboxes_->pause(world_rank(rank())); }

 protected:
  TransferPtr start_send(int peer, int tag, const void* data, std::uint64_t bytes) override {
    const ThreadAddress address{group(), world_rank(rank()), world_rank(peer), tag};
    auto message = std::make_shared<ThreadMessage>();
    message->data = const_cast<void*>(data);
    message->bytes = bytes;
    mailboxes_->send(address, message);
    return std::make_unique<ThreadTransfer>(mailboxes_, address, std::move(message));
  }

 private:
  const std::shared_ptr<ThreadMailboxes> mailboxes_;
};

/// Stores the first error of all ranks. The first error is the cause; later errors follow from it.
class FirstError {
 public:
  void keep(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
  }

  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
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
  if (rank < 0 || rank >= size_) {
    ::trireme::fail(ErrorKind::usage, "rank {} of a thread world, must be in [0, {})", rank, size_);
  }
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
  FirstError first;
  {
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([&world, &first, &body, rank] {
        try {
          const auto communicator = world.communicator(rank);
          body(*communicator);
        } catch (...) {
          first.keep(std::current_exception());
          world.fail(rank);
        }
      });
    }
  }
  first.rethrow();
}

}  // namespace trireme
