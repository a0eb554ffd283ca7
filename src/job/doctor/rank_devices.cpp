#include "job/doctor/rank_devices.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "core/join.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::job {
namespace {

constexpr const char* kWhereDevice = "a rank's device";

std::string hosts_of(const std::vector<RankDevice>& ranks, const std::vector<std::size_t>& which) {
  std::set<std::string> hosts;
  for (const std::size_t rank : which) hosts.insert(ranks[rank].host);
  return joined(hosts, ",");
}

std::optional<DeviceProblem> shared_gpu(const std::vector<RankDevice>& ranks) {
  std::map<std::pair<std::string, std::string>, std::vector<std::size_t>> users;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank)
    users[{ranks[rank].host, ranks[rank].gpu}].push_back(rank);
  for (const auto& [gpu, of_gpu] : users) {
    if (of_gpu.size() < 2) continue;
    return DeviceProblem{
        formatted("{} would share one GPU, of {} that each sees", ranks_text(ranks, of_gpu),
                  ranks[of_gpu.front()].num_gpus),
        "start one rank per GPU (--ntasks-per-node, mpirun -n), or make more GPUs visible (CUDA_VISIBLE_DEVICES, --gpus-per-node)"};
  }
  return std::nullopt;
}

}  // namespace

std::string ranks_text(const std::vector<RankDevice>& ranks,
                       const std::vector<std::size_t>& which) {
  std::map<std::string, std::vector<std::size_t>> by_host;
  for (const std::size_t rank : which) by_host[ranks[rank].host].push_back(rank);
  return joined(by_host, "; ", [](const auto& one) {
    return formatted("{} {} (host {})", one.second.size() == 1 ? "rank" : "ranks",
                     joined(one.second, ", "), one.first);
  });
}

std::string to_text(const RankDevice& device) {
  return json_text({{"host", device.host},
                    {"gpu", device.gpu},
                    {"num_gpus", device.num_gpus},
                    {"was_chosen", device.was_chosen},
                    {"has_gpus", device.has_gpus}});
}

RankDevice rank_device_from(const std::string& text) {
  try {
    const Json json = parse_json(text, kWhereDevice);
    return {json_get<std::string>(json, "host", kWhereDevice),
            json_get<std::string>(json, "gpu", kWhereDevice),
            static_cast<int>(json_get<std::int64_t>(json, "num_gpus", kWhereDevice)),
            json_get<bool>(json, "was_chosen", kWhereDevice),
            json_get<bool>(json, "has_gpus", kWhereDevice)};
  } catch (const Error& error) {
    throw Error(ErrorKind::internal, error.what());
  }
}

std::optional<DeviceProblem> device_problem(const std::vector<RankDevice>& ranks) {
  std::vector<std::size_t> on_cpu;
  std::vector<std::size_t> deprived;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (!ranks[rank].gpu.empty()) continue;
    on_cpu.push_back(rank);
    if (ranks[rank].has_gpus && !ranks[rank].was_chosen) deprived.push_back(rank);
  }
  if (on_cpu.empty()) return shared_gpu(ranks);
  if (on_cpu.size() < ranks.size()) {
    return DeviceProblem{formatted("{} {} no GPU, the others do", ranks_text(ranks, on_cpu),
                                   on_cpu.size() == 1 ? "sees" : "see"),
                         formatted("check the driver there (nvidia-smi), or exclude the node ({})",
                                   scheduler::scheduler().exclude_option(hosts_of(ranks, on_cpu)))};
  }
  if (deprived.empty()) return std::nullopt;
  return DeviceProblem{
      formatted("this job has GPUs, but {} {} none", ranks_text(ranks, deprived),
                deprived.size() == 1 ? "sees" : "see"),
      "look for a driver that does not answer (nvidia-smi), a container without --nv, an empty CUDA_VISIBLE_DEVICES or a build without CUDA; to train on CPUs give --train.device cpu"};
}

}  // namespace trireme::job
