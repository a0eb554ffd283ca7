#include "job/doctor/node_speeds.hpp"

#include <algorithm>
#include <cstdint>

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/number.hpp"
#include "core/timer.hpp"

namespace trireme::job {
namespace {

constexpr std::uint64_t kCount = std::uint64_t{4} << 20;  // number of floats (16 MiB)
constexpr int kRepeats = 3;

struct TimedSum {
  double gb_s = 0;
  bool is_right = true;
};

/// The combined results of one rank over its neighbours.
struct RankSums {
  double gb_s = 0;
  std::int64_t wrong = 0;
  std::int64_t right = 0;

  void add(const TimedSum& sum) {
    gb_s = std::max(gb_s, sum.gb_s);
    ++(sum.is_right ? right : wrong);
  }
};

/// Measures the speed of an all-reduce over `group` and checks the sums. Collective over `group`.
TimedSum time_sums(comm::Communicator& group) {
  const auto size = static_cast<double>(group.size());
  std::vector<float> values(kCount);
  TimedSum sum;
  for (int i = 0; i < kRepeats; ++i) {
    std::fill(values.begin(), values.end(), static_cast<float>(group.rank() + 1));
    group.barrier();
    const Timer timer;
    group
        .all_reduce({.input = values.data(),
                     .output = values.data(),
                     .count = kCount,
                     .dtype = DType::f32,
                     .op = comm::ReduceOp::sum,
                     .tag = "doctor"})
        ->wait();
    // This is the number of bytes that each rank sends. Source: Patarasuk and Yuan, JPDC 2009,
    // section 3.
    const double bytes = 2 * (size - 1) / size * 4 * static_cast<double>(kCount);
    sum.gb_s = std::max(sum.gb_s, bytes / timer.seconds() / 1e9);
  }
  const auto expected = static_cast<float>(size * (size + 1) / 2);
  sum.is_right = std::all_of(values.begin(), values.end(),
                             [expected](float value) { return value == expected; });
  return sum;
}

/// Measures all-reduces between the first rank of this node and the first ranks of its neighbours.
/// Collective.
RankSums time_neighbours(comm::Communicator& world, const comm::LaunchInfo& launch) {
  const bool leads = launch.local_rank == 0;
  RankSums sums;
  for (int round = 0; round < 2; ++round) {
    const int place = (launch.node + round) % launch.num_nodes;
    const auto pair = world.split(leads ? place / 2 : -1, world.rank(), "doctor pair");
    if (!pair || pair->size() < 2) continue;
    sums.add(time_sums(*pair));
  }
  return sums;
}

}  // namespace

std::vector<Finding> wrong_nodes(const std::vector<NodeSpeed>& nodes) {
  const auto is_bad = [](const NodeSpeed& one) {
    return one.wrong_sums > 0 && one.right_sums == 0;
  };
  const bool any_bad = std::any_of(nodes.begin(), nodes.end(), is_bad);
  std::vector<Finding> findings;
  for (const NodeSpeed& one : nodes) {
    if (one.wrong_sums == 0 || (any_bad && !is_bad(one))) continue;
    findings.push_back({"allreduce-wrong",
                        Finding::Severity::error,
                        one.host,
                        "a sum over ranks is wrong: memory or network damages data",
                        "exclude the node; if two nodes are reported, test each with another node",
                        {one.host}});
  }
  return findings;
}

std::vector<Finding> slow_nodes(const std::vector<NodeSpeed>& nodes) {
  std::vector<Finding> findings;
  if (nodes.size() < 3) return findings;
  std::vector<double> speeds;
  for (const NodeSpeed& one : nodes) speeds.push_back(one.allreduce_gb_s);
  std::nth_element(speeds.begin(), speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2),
                   speeds.end());
  const double median = speeds[speeds.size() / 2];
  for (const NodeSpeed& one : nodes) {
    if (one.allreduce_gb_s >= median / 2) continue;
    findings.push_back(
        {"node-slow",
         Finding::Severity::error,
         one.host,
         formatted("all-reduce with its neighbours runs at {}/s, the median is {}/s",
                   format_bytes(one.allreduce_gb_s * 1e9), format_bytes(median * 1e9)),
         formatted("exclude it: --exclude={}", one.host),
         {one.host}});
  }
  return findings;
}

SpeedReport measure_nodes(comm::Communicator& world, const comm::LaunchInfo& launch) {
  SpeedReport report;
  RankSums mine;
  if (launch.num_nodes > 1) {
    mine = time_neighbours(world, launch);
  } else if (world.size() > 1) {
    mine.add(time_sums(world));
  }
  const auto hosts = comm::gather_texts(world, launch.hostname);
  const auto nodes = comm::all_gather_value<std::int64_t>(world, launch.node, "doctor nodes");
  const auto speeds = comm::all_gather_value(world, mine.gb_s, "doctor speeds");
  const auto wrong = comm::all_gather_value(world, mine.wrong, "doctor wrong sums");
  const auto right = comm::all_gather_value(world, mine.right, "doctor right sums");
  if (world.rank() != 0) return report;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const auto node = static_cast<std::size_t>(nodes[rank]);
    if (node >= report.nodes.size()) report.nodes.resize(node + 1);
    NodeSpeed& one = report.nodes[node];
    one.host = hosts[rank];
    one.allreduce_gb_s = std::max(one.allreduce_gb_s, speeds[rank]);
    one.wrong_sums += static_cast<int>(wrong[rank]);
    one.right_sums += static_cast<int>(right[rank]);
  }
  report.findings = wrong_nodes(report.nodes);
  for (const Finding& slow : slow_nodes(report.nodes)) report.findings.push_back(slow);
  return report;
}

}  // namespace trireme::job
