#include "comm/liveness/network_settings.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "comm/agree.hpp"
#include "comm/liveness/heartbeat_wire.hpp"
#include "core/error.hpp"
#include "core/join.hpp"

namespace trireme::comm {
namespace {

constexpr std::array<std::string_view, 5> kPrefixes{"NCCL_", "UCX_", "OMPI_MCA_btl", "OMPI_MCA_pml",
                                                    "OMPI_MCA_oob"};

std::vector<std::string> set_variables() {
  std::vector<std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (std::any_of(kPrefixes.begin(), kPrefixes.end(),
                    [&](std::string_view prefix) { return text.starts_with(prefix); }))
      found.emplace_back(text);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

std::string own_network_settings() {
  const auto interfaces = heartbeat::own_interfaces();
  const std::string names = joined(interfaces, ", ", [](const heartbeat::Interface& one) {
    return cat(one.name, " ", one.address);
  });
  const auto variables = set_variables();
  const bool has_nccl = std::any_of(variables.begin(), variables.end(), [](const std::string& one) {
    return one.starts_with("NCCL_");
  });
  return formatted("{}; {}{}{}", names, joined(variables, " "),
                   variables.empty() || has_nccl ? "" : "; ",
                   has_nccl ? "" : "no NCCL_* variable set");
}

std::string describe_network(const std::vector<NetworkSettings>& ranks) {
  const auto same = [](const NetworkSettings& a, const NetworkSettings& b) {
    return a.host == b.host && a.text == b.text;
  };
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t end = first + 1;
    while (end < ranks.size() && same(ranks[first], ranks[end])) ++end;
    const std::string which = end - first == 1 ? formatted("rank {}", first)
                                               : formatted("ranks {} to {}", first, end - 1);
    text += formatted("\n  {} (host {}): {}", which, ranks[first].host, ranks[first].text);
    first = end;
  }
  return text;
}

std::string gather_network_settings(Communicator& world, const std::string& host) {
  const auto hosts = gather_texts(world, host);
  const auto texts = gather_texts(world, own_network_settings());
  std::vector<NetworkSettings> ranks;
  for (std::size_t rank = 0; rank < texts.size(); ++rank)
    ranks.push_back({hosts[rank], texts[rank]});
  return broadcast_text(world, describe_network(ranks));
}

}  // namespace trireme::comm
