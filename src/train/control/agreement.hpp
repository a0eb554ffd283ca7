#pragma once
#include <functional>
#include <string>

#include "comm/communicator.hpp"
#include "core/error.hpp"

namespace trireme {

/// Thrown on ranks where nothing went wrong, when another rank reported an error:
/// end with its code, silently.
class PeerFailed : public std::exception {
 public:
  explicit PeerFailed(int code) : code_(code) {}

  [[nodiscard]] int code() const noexcept { return code_; }

  [[nodiscard]] const char* what() const noexcept override { return "another rank failed"; }

 private:
  int code_;
};

/// The Error that all ranks agreed on, thrown where it happened: nobody waits
/// in a collective any more.
class AgreedError : public Error {
 public:
  explicit AgreedError(const Error& error) : Error(error) {}
};

/// Runs `action` on every rank, and lets all ranks agree on its end (collective). If it threw an
/// Error somewhere, the first such rank throws it again as AgreedError, and all others throw
/// PeerFailed: one message, one exit code, nobody left in a collective. StoppedEarly of one is
/// thrown on all.
void all_or_none(Communicator& world, const std::function<void()>& action);

/// Rank 0's text on every rank (collective).
std::string broadcast_text(Communicator& world, const std::string& text);

}  // namespace trireme
