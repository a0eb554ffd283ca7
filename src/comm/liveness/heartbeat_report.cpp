#include <algorithm>
#include <numeric>
#include <tuple>

#include "comm/liveness/heartbeat.hpp"
#include "core/error.hpp"

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
    text += formatted("\n  {}{}: step {}, {} operations, ", names[order[i]],
                      i == 0 && place(order[0]) < place(order.back()) ? " is behind" : "", now.step,
                      now.operations);
    if (now.operation.empty()) {
      text += "no collective yet";
    } else {
      text += formatted("{}{} '{}' of group {}, operation {}{}",
                        now.complete  ? "finished "
                        : now.waiting ? "waits in "
                                      : "has not finished ",
                        now.operation, now.tag, now.group, now.sequence,
                        now.timed_out ? ", timed out" : "");
    }
    text += formatted(", phase {}", now.phase);
  }
  if (order.size() > kMost)
    text += formatted("\n  and {} ranks ahead of them", order.size() - kMost);
  return text;
}

}  // namespace trireme
