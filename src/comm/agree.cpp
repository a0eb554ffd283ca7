#include "comm/agree.hpp"

#include <array>
#include <cstdint>

#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"
#include "core/process/stop_signals.hpp"

namespace trireme {
namespace {

std::uint64_t broadcast_number(Communicator& world, std::uint64_t number, int root) {
  world.broadcast(&number, 1, DType::u64, root, {}, "text size")->wait();
  return number;
}

}  // namespace

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
  received.resize(broadcast_number(world, text.size(), root));
  if (!received.empty()) {
    world.broadcast(received.data(), received.size(), DType::u8, root, {}, "text")->wait();
  }
  return received;
}

void agree(Communicator& world, const std::optional<Error>& mine) {
  std::int64_t failed = mine ? world.rank() : world.size();
  world.all_reduce(&failed, &failed, 1, DType::i64, ReduceOp::min, {}, "outcome")->wait();
  if (failed == world.size()) return;
  const int root = static_cast<int>(failed);
  const ErrorKind kind = mine ? mine->kind() : ErrorKind::internal;
  const auto shared = broadcast_number(world, static_cast<std::uint64_t>(kind), root);
  const std::string message = broadcast_text(world, mine ? mine->what() : "", root);
  const std::string place = world.size() > 1 ? formatted("rank {}: ", root) : "";
  throw Error(static_cast<ErrorKind>(shared), place + message);
}

void all_or_none(Communicator& world, const std::function<void()>& action) {
  std::optional<Error> error;
  bool stopped = false;
  try {
    action();
  } catch (const StoppedEarly&) {
    stopped = true;
  } catch (const std::exception&) {
    error = current_error();
  }
  const std::int32_t mine = error ? exit_code(error->kind()) : stopped ? kExitStopped : kExitDone;
  std::vector<std::int32_t> codes(static_cast<std::size_t>(world.size()));
  world.all_gather(&mine, codes.data(), 1, DType::i32, {}, "outcomes")->wait();
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] == kExitDone) continue;
    if (codes[rank] == kExitStopped) throw StoppedEarly();
    if (static_cast<int>(rank) == world.rank()) throw AgreedError(*error);
    throw PeerFailed(codes[rank]);
  }
}

std::vector<std::string> gather_texts(Communicator& world, const std::string& text) {
  const auto size = static_cast<std::size_t>(world.size());
  const std::uint64_t mine = text.size();
  std::vector<std::uint64_t> sizes(size);
  world.all_gather(&mine, sizes.data(), 1, DType::u64, {}, "text sizes")->wait();
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
  world.exchange(sends, receives, {}, "texts")->wait();
  return texts;
}

void check_equal(Communicator& world, std::string_view text, std::string_view what) {
  const std::uint64_t hash = xxh3_64(text);
  std::array<std::uint64_t, 2> extremes{hash,
                                        ~hash};  // max of both: equal to mine only if all agree
  world.all_reduce(extremes.data(), extremes.data(), 2, DType::u64, ReduceOp::max, {}, "equal")
      ->wait();
  const bool same = extremes[0] == hash && extremes[1] == ~hash;
  agree(world, same ? std::nullopt
                    : std::optional<Error>(
                          Error(ErrorKind::internal, formatted("ranks disagree on {}", what))));
}

}  // namespace trireme
