#include "job/leg.hpp"

#include <algorithm>
#include <set>

namespace trireme {

const LegRequest* Leg::stop_request() const {
  const auto found = std::find_if(requests.rbegin(), requests.rend(),
                                  [](const LegRequest& one) { return one.want == "stop"; });
  return found == requests.rend() ? nullptr : &*found;
}

std::vector<Verdict> not_told_yet(const std::vector<Verdict>& files, const Leg& leg) {
  std::set<int> known;
  for (const Verdict& one : leg.verdicts) known.insert(one.rank);
  std::vector<Verdict> fresh;
  for (const Verdict& one : files) {
    if (one.place == leg.place() && !known.contains(one.rank)) fresh.push_back(one);
  }
  return fresh;
}

}  // namespace trireme
