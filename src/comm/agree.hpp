#pragma once
#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "comm/communicator.hpp"
#include "core/error.hpp"

/// Exchanges errors and short texts between ranks, so that no rank waits forever in a collective
/// after another rank failed.
///
/// There are two ways to agree on an error. Use agree() if all ranks handle the error and continue
/// (they use an older checkpoint, or clean up). Use all_or_none() if the error must end all ranks,
/// with one message and one exit code.
namespace trireme::comm {

/// Runs `work` and returns its exception, converted by current_error() (core/files/refusal.hpp).
std::optional<Error> capture(const std::function<void()>& work);

/// If any rank has an error, all ranks throw the error of the lowest rank that has one, with "rank
/// N: " before its message. Collective.
void agree(Communicator& world, const std::optional<Error>& mine);

/// Thrown on ranks without an error of their own if another rank failed. The process exits with the
/// given code and prints nothing.
class PeerFailed : public std::exception {
 public:
  explicit PeerFailed(int code) : code_(code) {}

  [[nodiscard]] int code() const noexcept { return code_; }

  [[nodiscard]] const char* what() const noexcept override { return "another rank failed"; }

 private:
  int code_;
};

/// The error that all ranks agreed on, thrown on the rank where it happened. The other ranks throw
/// PeerFailed, so no rank waits in a collective any more.
class AgreedError : public Error {
 public:
  explicit AgreedError(const Error& error) : Error(error) {}
};

/// Runs `action` on every rank, then all ranks agree on the outcome. If `action` threw on some
/// ranks, the lowest of these ranks throws AgreedError (converted by current_error()) and all other
/// ranks throw PeerFailed. Exception: if `action` threw StoppedEarly on the lowest of these ranks,
/// all ranks throw StoppedEarly. Collective.
void all_or_none(Communicator& world, const std::function<void()>& action);

/// Like all_or_none() above, but returns the result of `make`.
template <class Make>

requires(!std::is_void_v<std::invoke_result_t<Make>>) auto all_or_none(Communicator& world,
                                                                       Make&& make) {
  std::optional<std::invoke_result_t<Make>> made;
  const std::function<void()> action = [&] { made.emplace(make()); };
  all_or_none(world, action);
  return *std::move(made);
}

/// Collective. Returns the text of rank `root` on every rank.
std::string broadcast_text(Communicator& world, const std::string& text, int root = 0);

/// Collective. Returns the texts of all ranks on rank 0, and an empty list on other ranks.
std::vector<std::string> gather_texts(Communicator& world, const std::string& text);

/// Collective. Throws Error(internal) with `what` unless `text` is equal on all ranks.
void check_equal(Communicator& world, std::string_view text, std::string_view what);

}  // namespace trireme::comm
