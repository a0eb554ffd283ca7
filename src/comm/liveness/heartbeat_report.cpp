#include <algorithm>
#include <numeric>
#include <tuple>

#include "comm/liveness/heartbeat.hpp"
#include "core/error.hpp"

/// What rank 0 writes when ranks stand still.
namespace trireme {

std::string describe_progress(const std::vector<std::string>& names,
                              const std::vector<ActivitySnapshot>& ranks) {
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto place = [&](std::size_t r) {
    return std::tuple(ranks[r].step, ranks[r].operations, ranks[r].waiting);
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return place(a) < place(b); });
  constexpr std::size_t kMost = 16;
  std::string text;
  for (std::size_t i = 0; i < std::min(order.size(), kMost); ++i) {
    const auto& now = ranks[order[i]];
    text += cat("\n  ", names[order[i]],
                i == 0 && place(order[0]) < place(order.back()) ? " is behind" : "", ": step ",
                now.step, ", ", now.operations, " operations, ");
    if (now.operation.empty()) {
      text += "no collective yet";
    } else {
      text += cat(now.complete  ? "finished "
                  : now.waiting ? "waits in "
                                : "has not finished ",
                  now.operation, " '", now.tag, "' of group ", now.group, ", operation ",
                  now.sequence, now.timed_out ? ", timed out" : "");
    }
    text += cat(", phase ", now.phase);
  }
  if (order.size() > kMost) text += cat("\n  and ", order.size() - kMost, " ranks ahead of them");
  return text;
}

}  // namespace trireme
