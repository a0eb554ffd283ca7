#pragma once
#include <functional>
#include <memory>

#include "comm/communicator.hpp"
#include "comm/options.hpp"

namespace trireme {

class ThreadMailboxes;

/// Ranks as threads of one process: for tests, debuggers and the thread sanitizer.
///
/// Each thread asks once for its own communicator and uses it alone. When a rank ends with an error
/// its peers must be told by `fail`, otherwise they wait for their timeout.
class ThreadWorld {
 public:
  explicit ThreadWorld(int size, CommOptions options = {});
  ~ThreadWorld();
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  /// The communicator "world" of `rank`; call once per rank, from any thread. Throws Error(usage)
  /// outside [0, size).
  [[nodiscard]] std::unique_ptr<Communicator> communicator(int rank);

  /// Ends every wait of every other rank with Error(comm) naming `rank`.
  void fail(int rank);

 private:
  const std::shared_ptr<ThreadMailboxes> mailboxes_;  // communicators may outlive the world
  const int size_;
  const CommOptions options_;
};

/// Runs `body` on `size` ranks, each a thread, and returns when all have ended. A rank that throws
/// unblocks the others; the first error (not those it caused) is thrown again here.
void run_ranks(int size, const std::function<void(Communicator&)>& body, CommOptions options = {});

}  // namespace trireme
