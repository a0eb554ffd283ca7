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

/// Errors and small texts between ranks, so that nobody is left waiting in a collective.
///
/// Two ways to agree on an error: `agree` where all ranks go on to handle it (fall back to an older
/// checkpoint, tidy up), `all_or_none` where it ends them: one message, one exit code.
namespace trireme {

/// Runs `work` and returns what it threw; a foreign exception as current_error
/// (core/files/refusal.hpp) says.
std::optional<Error> capture(const std::function<void()>& work);

/// Collective. If any rank brings an error, all throw the one of the lowest such rank, its message
/// led by "rank N: ".
void agree(Communicator& world, const std::optional<Error>& mine);

/// Thrown on ranks where nothing went wrong, when another rank reported an error: end with its
/// code, silently.
class PeerFailed : public std::exception {
 public:
  explicit PeerFailed(int code) : code_(code) {}

  [[nodiscard]] int code() const noexcept { return code_; }

  [[nodiscard]] const char* what() const noexcept override { return "another rank failed"; }

 private:
  int code_;
};

/// The Error that all ranks agreed on, thrown where it happened: nobody waits in a collective any
/// more.
class AgreedError : public Error {
 public:
  explicit AgreedError(const Error& error) : Error(error) {}
};

/// Collective. Runs `action` on every rank and lets all agree on its end. If it threw somewhere,
/// the first such rank throws that as AgreedError (a foreign exception as current_error says), all
/// others PeerFailed. StoppedEarly of one is thrown on all.
void all_or_none(Communicator& world, const std::function<void()>& action);

/// The same for what `make` returns.
template <class Make>

requires(!std::is_void_v<std::invoke_result_t<Make>>) auto all_or_none(Communicator& world,
                                                                       Make&& make) {
  std::optional<std::invoke_result_t<Make>> made;
  const std::function<void()> action = [&] { made.emplace(make()); };
  all_or_none(world, action);
  return *std::move(made);
}

/// Collective. The text of rank `root`, on every rank.
std::string broadcast_text(Communicator& world, const std::string& text, int root = 0);

/// Collective. On rank 0 the texts of all ranks, elsewhere empty.
std::vector<std::string> gather_texts(Communicator& world, const std::string& text);

/// Collective. Throws Error(internal) naming `what` unless `text` is the same on all ranks.
void check_equal(Communicator& world, std::string_view text, std::string_view what);

}  // namespace trireme
