#include "comm/agree.hpp"

#include <array>
#include <cstdint>

#include "comm/scalars.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"
#include "core/process/stop_signals.hpp"

namespace trireme::comm {

std::optional<Error> capture(const std::function<void()>& work) {
  try {
    work();
    return std::nullopt;
  } catch (const std::exception&) {
    return current_error();
  }
}

std::string broadcast_text(Communicator& world, const std::string& text, int root) {
  std::string received = text;
  received.resize(broadcast_value<std::uint64_t>(world, text.size(), root, "text size"));
  if (!received.empty()) {
    world
        .broadcast({.data = received.data(),
                    .count = received.size(),
                    .dtype = DType::u8,
                    .root = root,
                    .tag = "text"})
        ->wait();
  }
  return received;
}

void agree(Communicator& world, const std::optional<Error>& mine) {
  const std::int64_t candidate = mine ? world.rank() : world.size();
  const auto root = static_cast<int>(all_reduce_value(world, candidate, ReduceOp::min, "outcome"));
  if (root == world.size()) return;
  const ErrorKind kind = mine ? mine->kind() : ErrorKind::internal;
  const auto shared = broadcast_value(world, static_cast<std::uint64_t>(kind), root, "error kind");
  const std::string message = broadcast_text(world, mine ? mine->what() : "", root);
  const std::string place = world.size() > 1 ? formatted("rank {}: ", root) : "";
  throw Error(static_cast<ErrorKind>(shared), place + message);
}

void all_or_none(Communicator& world, const std::function<void()>& action) {
  bool stopped = false;
  const std::optional<Error> error = capture([&] {
    try {
      action();
    } catch (const StoppedEarly&) {
      stopped = true;
    }
  });
  const std::int32_t mine = error ? exit_code(error->kind()) : stopped ? kExitStopped : kExitDone;
  const std::vector<std::int32_t> codes = all_gather_value(world, mine, "outcomes");
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] == kExitDone) continue;
    if (codes[rank] == kExitStopped) throw StoppedEarly();
    if (static_cast<int>(rank) == world.rank()) throw AgreedError(*error);
    throw PeerFailed(codes[rank]);
  }
}

std::vector<std::string> gather_texts(Communicator& world, const std::string& text) {
  const auto size = static_cast<std::size_t>(world.size());
  const auto sizes = all_gather_value<std::uint64_t>(world, text.size(), "text sizes");
  std::vector<std::string> texts;
  std::vector<Message> sends;
  std::vector<Message> receives;
  if (world.rank() == 0) {
    texts.resize(size);
    texts[0] = text;
    for (std::size_t rank = 1; rank < size; ++rank) {
      texts[rank].resize(sizes[rank]);
      if (sizes[rank] > 0)
        receives.push_back({static_cast<int>(rank), texts[rank].data(), sizes[rank]});
    }
  }
  std::string copy = text;  // Message holds a mutable pointer
  if (world.rank() != 0 && !copy.empty()) sends.push_back({0, copy.data(), copy.size()});
  world.exchange({.sends = sends, .receives = receives, .tag = "texts"})->wait();
  return texts;
}

void check_equal(Communicator& world, std::string_view text, std::string_view what) {
  const std::uint64_t hash = xxh3_64(text);
  // Compare the maxima over ranks with this rank's values: both the hash and its complement are the
  // maximum only if all ranks have the same hash.
  std::array<std::uint64_t, 2> extremes{hash, ~hash};
  world
      .all_reduce({.input = extremes.data(),
                   .output = extremes.data(),
                   .count = 2,
                   .dtype = DType::u64,
                   .op = ReduceOp::max,
                   .tag = "equal"})
      ->wait();
  const bool same = extremes[0] == hash && extremes[1] == ~hash;
  agree(world, same ? std::nullopt
                    : std::optional<Error>(
                          Error(ErrorKind::internal, formatted("ranks disagree on {}", what))));
}

}  // namespace trireme::comm
