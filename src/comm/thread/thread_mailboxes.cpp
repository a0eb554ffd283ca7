#include "comm/thread/thread_mailboxes.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "core/error.hpp"

namespace trireme {

ThreadMailboxes::ThreadMailboxes(int size)
    : mailboxes_(static_cast<std::size_t>(size)), bells_(static_cast<std::size_t>(size)) {}

void ThreadMailboxes::put(const ThreadAddress& address,
                          const std::shared_ptr<ThreadMessage>& message,
                          std::deque<std::shared_ptr<ThreadMessage>> Queues::*own,
                          std::deque<std::shared_ptr<ThreadMessage>> Queues::*other) {
  Mailbox& mailbox = mailboxes_[static_cast<std::size_t>(address.to)];
  {
    const std::lock_guard lock(mailbox.mutex);
    Queues& queues = mailbox.queues[address];
    if ((queues.*other).empty()) {
      (queues.*own).push_back(message);
      return;
    }
    const auto match = (queues.*other).front();
    (queues.*other).pop_front();
    if (queues.sends.empty() && queues.receives.empty()) mailbox.queues.erase(address);
    ThreadMessage& sent = own == &Queues::sends ? *message : *match;
    ThreadMessage& received = own == &Queues::sends ? *match : *message;
    if (sent.bytes != received.bytes) {
      sent.error = received.error = formatted(
          "rank {} sends {} bytes where rank {} expects {}; the ranks call with different sizes",
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

void ThreadMailboxes::send(const ThreadAddress& address,
                           const std::shared_ptr<ThreadMessage>& message) {
  put(address, message, &Queues::sends, &Queues::receives);
}

void ThreadMailboxes::receive(const ThreadAddress& address,
                              const std::shared_ptr<ThreadMessage>& message) {
  put(address, message, &Queues::receives, &Queues::sends);
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

}  // namespace trireme
