#include "train/audit/distribution_record.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "comm/agree.hpp"
#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"

namespace trireme::train {
namespace {

constexpr std::array<std::pair<parallel::Axis, const char*>, 7> kCoords{
    {{parallel::Axis::dp, "dp"},
     {parallel::Axis::tp, "tp"},
     {parallel::Axis::cp, "cp"},
     {parallel::Axis::pp, "pp"},
     {parallel::Axis::ep, "ep"},
     {parallel::Axis::etp, "etp"},
     {parallel::Axis::edp, "edp"}}};

/// The coordinates that decide which parameters a rank holds.
constexpr std::array<const char*, 4> kShardCoords{"tp", "pp", "etp", "ep"};

std::uint64_t hash_of(const at::Tensor& weights) {
  const at::Tensor bytes = weights.contiguous().to(at::kCPU);  // no copy in host memory
  return xxh3_64({static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()});
}

/// Hashes all weights that this rank holds.
std::string weights_hash(parallel::ParamRegistry& registry, bool sharded) {
  std::vector<std::uint64_t> hashes;
  if (sharded) {
    for (std::size_t unit = 0; unit < registry.layout().units().size(); ++unit)
      hashes.push_back(hash_of(registry.master_part(unit)));
  } else {
    for (parallel::ParamId id = 0; id < registry.size(); ++id)
      hashes.push_back(hash_of(registry.weight(id)));
  }
  return xxh3_128_hex(
      {reinterpret_cast<const char*>(hashes.data()), hashes.size() * sizeof(std::uint64_t)});
}

Json parameters_json(const Json& ranks, bool sharded) {
  std::map<std::string, std::set<std::string>> hashes;  // by shard
  for (const Json& rank : ranks) {
    std::string shard;
    for (const char* axis : kShardCoords) shard += cat(rank.at("coords").at(axis), " ");
    if (sharded) shard += cat("rank ", rank.at("rank"));
    hashes[shard].insert(rank.at("weights_hash").get<std::string>());
  }
  bool identical = true;
  std::string all;
  for (const auto& [shard, of_copies] : hashes) {
    identical = identical && of_copies.size() == 1;
    for (const std::string& one : of_copies) all += one;
  }
  const auto copies = static_cast<std::int64_t>(ranks.size() / hashes.size());
  return {{"shards", hashes.size()},
          {"copies", copies},
          {"identical", identical},
          {"hash", xxh3_128_hex(all)}};
}

}  // namespace

Json distribution_record(comm::Communicator& world, parallel::ParamRegistry& registry,
                         const parallel::Mesh& mesh, const comm::LaunchInfo& launch, int threads,
                         bool sharded) {
  std::ostringstream device;
  device << registry.device();
  Json mine{{"rank", world.rank()},     {"host", launch.hostname},
            {"device", device.str()},   {"threads", threads},
            {"coords", Json::object()}, {"weights_hash", weights_hash(registry, sharded)}};
  for (const auto& [axis, name] : kCoords) mine["coords"][name] = mesh.rank(axis);
  const std::vector<std::string> texts = comm::gather_texts(world, mine.dump());
  if (world.rank() != 0) return {};
  Json record{
      {"ranks", world.size()},    {"nodes", launch.num_nodes}, {"backend", mesh.world().backend()},
      {"groups", Json::object()}, {"parameters", Json()},      {"per_rank", Json::array()}};
  for (const auto& [axis, name] : kCoords) record["groups"][name] = mesh.size(axis);
  for (const std::string& text : texts) record["per_rank"].push_back(Json::parse(text));
  record["parameters"] = parameters_json(record["per_rank"], sharded);
  return record;
}

std::string distribution_text(const Json& record) {
  std::vector<std::string> axes;
  for (const char* axis : {"dp", "tp", "cp", "pp", "ep"})
    if (const int size = record.at("groups").at(axis).get<int>(); size > 1)
      axes.push_back(cat(axis, " ", size));
  std::vector<std::string> hosts;
  for (const Json& rank : record.at("per_rank")) {
    const std::string host = rank.at("host").get<std::string>();
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  constexpr std::size_t kMostHosts = 8;
  const std::string more =
      hosts.size() > kMostHosts ? formatted(" and {} more", hosts.size() - kMostHosts) : "";
  hosts.resize(std::min(hosts.size(), kMostHosts));
  const Json& parameters = record.at("parameters");
  const auto copies = parameters.at("copies").get<std::int64_t>();
  const std::string shards = counted(parameters.at("shards").get<std::int64_t>(), "shard");
  const char* state = copies == 1                              ? "without copies"
                      : parameters.at("identical").get<bool>() ? "identical"
                                                               : "NOT identical";
  return formatted("{} on {}{}; parameters: {}, {} {} of each, {}, hash {}",
                   axes.empty() ? "1 rank" : joined(axes, ", "), joined(hosts, ", "), more, shards,
                   copies, copies == 1 ? "copy" : "copies", state,
                   parameters.at("hash").get<std::string>());
}

}  // namespace trireme::train
