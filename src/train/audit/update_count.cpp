#include "train/audit/update_count.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "comm/traffic.hpp"
#include "core/error.hpp"

namespace trireme::train {
namespace {

std::vector<CountedGroup> groups_of(const Step& step) {
  const parallel::Mesh& mesh = step.parts().mesh;
  std::vector<CountedGroup> groups;
  for (std::size_t axis = 0; axis < parallel::kAxisNames.size(); ++axis)
    groups.push_back(
        {parallel::kAxisNames[axis], &mesh.group(static_cast<parallel::Axis>(axis)), {}});
  for (comm::Communicator* link : step.links().groups()) groups.push_back({"pp", link, {}});
  for (comm::Communicator* group : step.parts().optimizer.groups())
    groups.push_back({group->name(), group, {}});
  if (comm::Communicator* tied = step.stage_sums().table_group())
    groups.push_back({"tied", tied, {}});
  if (const parallel::NodeLevels* levels = mesh.node_levels()) {
    groups.push_back({"node", levels->node.get(), {}});
    groups.push_back({"across", levels->across.get(), {}});
  }
  std::erase_if(groups, [](const CountedGroup& one) { return one.group->size() == 1; });
  return groups;
}

using Key = std::tuple<std::string, std::string, std::string>;

Key key_of(const CollectiveRow& row) {
  return {row.group, row.operation, row.purpose};
}

std::string numbers(const CollectiveRow& row, bool calls_alone) {
  if (calls_alone) return formatted("{} calls", row.count);
  return formatted("{} calls, {} bytes, {} moved", row.count, row.payload_bytes,
                   row.moved_bytes ? cat(*row.moved_bytes) : "unknown");
}

}  // namespace

UpdateCount::UpdateCount(Step& step)
    : step_(step), registry_(step.parts().model.registry()), groups_(groups_of(step)) {
  registry_.weights().settle();
  world_before_ = step.parts().mesh.world().traffic();
  for (CountedGroup& one : groups_) one.before = one.group->traffic();
  step.count_activations(true);
}

void UpdateCount::end(const UpdateResult& result) {
  const parallel::Mesh& mesh = step_.parts().mesh;
  step_.count_activations(false);
  registry_.weights().settle();
  const auto add = [&](std::string_view group, int size, const comm::TrafficRow& row) {
    for (CollectiveRow& same : collectives_) {  // another pair of stages may have added this row
      if (key_of(same) != Key{group, row.operation, row.purpose}) continue;
      same.count += row.count;
      same.payload_bytes += row.payload_bytes;
      if (same.moved_bytes && row.moved_bytes) *same.moved_bytes += *row.moved_bytes;
      return;
    }
    collectives_.push_back({std::string(group), size, row.operation, row.purpose, row.count,
                            row.payload_bytes, row.moved_bytes});
  };
  for (const comm::TrafficRow& row : comm::traffic_between(world_before_, mesh.world().traffic()))
    // Skip other collectives of the world, such as the votes of a run.
    if ((row.purpose == "norm" || row.purpose == "load of experts" || row.purpose == "fp8 amax") &&
        mesh.world().size() > 1)
      add("world", mesh.world().size(), row);
  for (const CountedGroup& one : groups_)
    for (const comm::TrafficRow& row : comm::traffic_between(one.before, one.group->traffic()))
      add(one.name, one.name == "pp" ? mesh.size(parallel::Axis::pp) : one.group->size(), row);
  std::sort(collectives_.begin(), collectives_.end(),
            [](const CollectiveRow& a, const CollectiveRow& b) { return key_of(a) < key_of(b); });
  passes_ = result.passes;
  memory_ = {registry_.weights().held_bytes(),
             registry_.main_bytes(),
             registry_.grads().held_bytes(),
             0,
             registry_.weights().gathered_peak_bytes() + registry_.grads().live_peak_bytes(),
             passes_.activation_bytes};
  for (const optim::OptimizerSlot& slot : step_.parts().optimizer.slots())
    memory_.optimizer_bytes += static_cast<std::int64_t>(slot.flat.nbytes());
  if (const optim::WeightAverage* average = step_.parts().average)
    memory_.optimizer_bytes += static_cast<std::int64_t>(average->slot().flat.nbytes());
}

std::string differences(const std::vector<CollectiveRow>& counted,
                        const std::vector<CollectiveRow>& expected) {
  std::map<Key, std::pair<std::string, std::string>> both;
  std::set<Key> calls_alone;
  for (const CollectiveRow& row : expected)
    if (!row.moved_bytes) calls_alone.insert(key_of(row));
  for (const CollectiveRow& row : counted)
    both[key_of(row)].first = numbers(row, calls_alone.contains(key_of(row)));
  for (CollectiveRow row : expected) {
    const bool is_known = row.moved_bytes.has_value();
    const auto same = std::find_if(counted.begin(), counted.end(), [&](const CollectiveRow& one) {
      return key_of(one) == key_of(row);
    });
    if (same != counted.end() && !same->moved_bytes) row.moved_bytes.reset();
    both[key_of(row)].second = numbers(row, !is_known);
  }
  std::string text;
  for (const auto& [key, value] : both) {
    if (value.first == value.second) continue;
    const auto& [group, operation, purpose] = key;
    text += formatted("{} of {} ({}): {}; the formula says {}\n", operation, group, purpose,
                      value.first.empty() ? "nothing" : value.first,
                      value.second.empty() ? "nothing" : value.second);
  }
  return text;
}

std::string differences(const RankMemory& counted, const RankMemory& expected) {
  std::map<std::string, std::int64_t> wanted;
  RankMemory::fields(expected, [&](const char* name, std::int64_t value) { wanted[name] = value; });
  std::string text;
  RankMemory::fields(counted, [&](const char* name, std::int64_t value) {
    if (wanted[name] >= 0 && value != wanted[name])
      text += formatted("{} = {}; the formula says {}\n", name, value, wanted[name]);
  });
  return text;
}

}  // namespace trireme::train
