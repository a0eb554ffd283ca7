#include "train/report/device_use.hpp"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <map>
#include <set>

#include "comm/scalars.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/process/allowed_cpus.hpp"

namespace trireme::train {
namespace {

constexpr std::size_t kMaskWords = CPU_SETSIZE / 64;

/// Returns the entry of describe_devices for one node.
std::string describe_node(const std::vector<const DeviceUse*>& ranks) {
  const auto on_gpu = [](const DeviceUse* one) { return one->gpu >= 0; };
  const auto count = ranks.size();
  if (std::all_of(ranks.begin(), ranks.end(), on_gpu)) {
    std::set<int> used;
    int seen = 0;
    for (const DeviceUse* one : ranks) {
      used.insert(one->gpu);
      seen = std::max(seen, one->num_gpus);
    }
    if (seen == 1 && count > 1) return formatted("{} GPUs, each visible to one rank only", count);
    const auto idle = static_cast<std::size_t>(seen) - used.size();
    return formatted(
        "{} of {} GPUs, {}{}", used.size(), seen,
        idle == 0 ? "none idle" : formatted("{} idle", idle),
        count > used.size() ? formatted(", shared by {}", counted(count, "rank")) : "");
  }
  std::size_t threads = 0;
  std::vector<std::uint64_t> mask(kMaskWords);
  for (const DeviceUse* one : ranks) {
    threads += static_cast<std::size_t>(one->threads);
    for (std::size_t i = 0; i < std::min(mask.size(), one->cpus.size()); ++i)
      mask[i] |= one->cpus[i];
  }
  std::size_t cpus = 0;
  for (const std::uint64_t word : mask) cpus += static_cast<std::size_t>(std::popcount(word));
  return formatted("{} on {}, {}", counted(threads, "thread"), counted(cpus, "CPU"),
                   threads < cpus ? formatted("{} idle", cpus - threads)
                   : threads > cpus
                       ? cat("more threads than CPUs: ",
                             threads > ranks.size() ? "lower train.threads" : "start fewer ranks")
                       : std::string("none idle"));
}

}  // namespace

std::string describe_devices(const std::vector<DeviceUse>& ranks) {
  std::map<int, std::vector<const DeviceUse*>> nodes;
  for (const DeviceUse& rank : ranks) nodes[rank.node].push_back(&rank);
  std::map<std::string, std::vector<int>> same;
  for (const auto& [node, its] : nodes) same[describe_node(its)].push_back(node);
  std::string text;
  for (const auto& [what, its] : same) {
    if (!text.empty()) text += "; ";
    text += its.size() == 1 && nodes.size() > 1 ? formatted("on node {}: ", its.front())
            : its.size() > 1                    ? formatted("on each of {} nodes: ", its.size())
                                                : std::string();
    text += what;
  }
  return text;
}

std::vector<DeviceUse> gather_device_use(comm::Communicator& world, const DeviceUse& mine) {
  const auto nodes = comm::all_gather_value(world, mine.node, "devices");
  const auto gpus = comm::all_gather_value(world, mine.gpu, "devices");
  const auto seen = comm::all_gather_value(world, mine.num_gpus, "devices");
  const auto threads = comm::all_gather_value(world, mine.threads, "devices");
  const auto size = static_cast<std::size_t>(world.size());
  std::vector<std::uint64_t> own = mine.cpus;
  own.resize(kMaskWords);
  std::vector<std::uint64_t> cpus(size * kMaskWords);
  world
      .all_gather({.input = own.data(),
                   .output = cpus.data(),
                   .count = kMaskWords,
                   .dtype = DType::u64,
                   .tag = "devices"})
      ->wait();
  std::vector<DeviceUse> all;
  for (std::size_t rank = 0; rank < size; ++rank) {
    const auto begin = cpus.begin() + static_cast<std::ptrdiff_t>(rank * kMaskWords);
    all.push_back({nodes[rank],
                   gpus[rank],
                   seen[rank],
                   threads[rank],
                   {begin, begin + static_cast<std::ptrdiff_t>(kMaskWords)}});
  }
  return all;
}

std::vector<std::uint64_t> allowed_cpu_mask() {
  std::vector<std::uint64_t> mask(kMaskWords);
  for (const int cpu : allowed_cpus()) {
    const auto bit = static_cast<std::size_t>(cpu);
    mask[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
  return mask;
}

}  // namespace trireme::train
