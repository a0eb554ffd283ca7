#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "comm/communicator.hpp"
#include "comm/options.hpp"
#include "comm/session.hpp"

/// Starting and leaving a rank: from main to its exit code.
namespace trireme {

/// For worlds whose ranks meet at the end of hours of work of their own.
inline constexpr double kNoTimeout_s = 1e9;

/// The rest of main on one rank: what `body` returns or throws as exit code and one message
/// (run_main.hpp). AgreedError and PeerFailed (agree.hpp) are known to all ranks, and each ends by
/// itself; after any other error the peers may wait in a collective, and `abandon` is called.
int run_rank(const char* program, const std::function<int()>& body,
             const std::function<void(int code)>& abandon);

/// One rank of what a launcher started, or a process alone, for which no MPI comes up. The log
/// knows the rank from here on. One per process, in main.
class Launch {
 public:
  /// `options`: of world(). Throws as Session.
  Launch(const char* program, int* argc, char*** argv, const CommOptions& options);
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  [[nodiscard]] const LaunchInfo& info() const noexcept { return info_; }

  [[nodiscard]] Communicator& world() const noexcept { return *world_; }

  /// Called when this rank ends by an error of its own, before the others are ended by force.
  void before_abort(std::function<void(int code)> tell) { tell_ = std::move(tell); }

  /// run_rank, which ends the whole job when this rank abandons it; to be called once.
  int run(const std::function<int()>& body) const;

 private:
  const char* program_;
  std::optional<Session> session_;
  LaunchInfo info_;
  std::unique_ptr<Communicator> world_;
  std::function<void(int)> tell_;
};

}  // namespace trireme
