#pragma once
#include <functional>
#include <memory>

#include "comm/communicator.hpp"
#include "comm/options.hpp"

namespace trireme::comm {

class ThreadMailboxes;

/// Ranks as threads of one process, for tests, debuggers and the thread sanitizer.
///
/// Each thread requests its own communicator once and uses it alone. If a rank ends with an error,
/// call fail(); otherwise its peers wait until their timeout.
class ThreadWorld {
 public:
  explicit ThreadWorld(int size, CommOptions options = {});
  ~ThreadWorld();
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  /// Returns the communicator "world" of `rank`; call it once per rank, from any thread. Throws
  /// Error(usage) outside [0, size).
  [[nodiscard]] std::unique_ptr<Communicator> communicator(int rank);

  /// Makes every waiting call of the other ranks throw Error(comm) that names `rank`.
  void fail(int rank);

 private:
  const std::shared_ptr<ThreadMailboxes> mailboxes_;  // communicators may outlive the world
  const int size_;
  const CommOptions options_;
};

/// Runs `body` on `size` ranks, each in a thread, and returns when all have ended. If a rank
/// throws, the other ranks stop waiting, and this function rethrows the first error.
void run_ranks(int size, const std::function<void(Communicator&)>& body, CommOptions options = {});

}  // namespace trireme::comm
