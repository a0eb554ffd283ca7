#include "job/submit/cluster.hpp"

#include <array>
#include <cctype>
#include <tuple>

namespace trireme {

std::optional<NodeKind> choose_kind(const std::vector<NodeKind>& kinds,
                                    const std::string& partition) {
  std::optional<NodeKind> best;
  for (const NodeKind& kind : kinds) {
    if (partition.empty() ? !kind.is_default : kind.partition != partition) continue;
    const auto place = [](const NodeKind& one) { return std::tuple(one.gpus > 0, one.nodes); };
    if (!best || place(kind) > place(*best)) best = kind;
  }
  return best;
}

std::optional<std::int64_t> memory_of_gpu(std::string_view type) {
  struct Card {
    std::string_view name;
    std::int64_t gigabytes;
  };

  static constexpr std::array<Card, 13> kCards{{{"b200", 192},
                                                {"h200", 144},
                                                {"h100", 96},
                                                {"gh200", 144},
                                                {"a100", 80},
                                                {"v100", 32},
                                                {"p100", 16},
                                                {"l40s", 48},
                                                {"l40", 48},
                                                {"a40", 48},
                                                {"a30", 24},
                                                {"l4", 24},
                                                {"t4", 16}}};
  std::string lower(type);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const Card& card : kCards)
    if (lower == card.name) return card.gigabytes << 30;
  return std::nullopt;
}

}  // namespace trireme
