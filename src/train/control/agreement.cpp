#include "train/control/agreement.hpp"

#include <optional>
#include <vector>

#include "core/process/stop_signals.hpp"
#include "parallel/torch_errors.hpp"

namespace trireme {

void all_or_none(Communicator& world, const std::function<void()>& action) {
  std::optional<Error> error;
  bool stopped = false;
  try {
    with_torch_errors(action);
  } catch (const Error& thrown) {
    error = thrown;
  } catch (const StoppedEarly&) {
    stopped = true;
  }
  const std::int32_t mine = error ? exit_code(error->kind()) : stopped ? kExitStopped : kExitDone;
  std::vector<std::int32_t> codes(static_cast<std::size_t>(world.size()));
  world.all_gather(&mine, codes.data(), 1, DType::i32, {}, "agreement")->wait();
  for (std::size_t rank = 0; rank < codes.size(); ++rank) {
    if (codes[rank] == 0) continue;
    if (codes[rank] == kExitStopped) throw StoppedEarly();
    if (static_cast<int>(rank) == world.rank()) throw AgreedError(*error);
    throw PeerFailed(codes[rank]);
  }
}

std::string broadcast_text(Communicator& world, const std::string& text) {
  std::uint64_t size = text.size();
  world.broadcast(&size, 1, DType::u64, 0, {}, "text size")->wait();
  std::string result = world.rank() == 0 ? text : std::string(size, '\0');
  world.broadcast(result.data(), size, DType::u8, 0, {}, "text")->wait();
  return result;
}

}  // namespace trireme
