#include "comm/session.hpp"

#include <unistd.h>

#include <array>
#include <set>

namespace trireme::comm {

std::string this_hostname() {
  std::array<char, 256> name{};
  ::gethostname(name.data(), name.size() - 1);
  return name.data();
}

NodeNumber number_nodes(const std::vector<int>& leader_of_rank, int rank) {
  const std::set<int> leaders(leader_of_rank.begin(), leader_of_rank.end());
  const auto at = leaders.find(leader_of_rank[static_cast<std::size_t>(rank)]);
  return {static_cast<int>(std::distance(leaders.begin(), at)), static_cast<int>(leaders.size())};
}

}  // namespace trireme::comm
