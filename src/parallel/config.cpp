#include "parallel/config.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/problems.hpp"
#include "parallel/context/attention.hpp"
#include "parallel/context/sequence_sharding.hpp"
#include "parallel/recompute.hpp"
#include "pipeline/named.hpp"

namespace trireme::parallel {
namespace {

/// This limit keeps products of axis sizes within 64 bits.
constexpr std::int64_t kMostRanks = std::int64_t{1} << 20;
constexpr std::int64_t kMostVirtualStages = 1000;
constexpr std::int64_t kMostMicroBatches = 1'000'000'000;
constexpr std::int64_t kMostBucketMb = 1'000'000;

template <class Names>
std::vector<std::string> names_of(const Names& names) {
  return {names.begin(), names.end()};
}

}  // namespace

void check(const ParallelConfig& config, Problems& problems) {
  for (const auto& [key, ranks] : {std::pair{"parallel.tp", config.tp},
                                   {"parallel.cp", config.cp},
                                   {"parallel.pp", config.pp},
                                   {"parallel.ep", config.ep}}) {
    if (ranks < 1 || ranks > kMostRanks)
      problems.add(key, ranks, formatted("must be in [1, {}]", kMostRanks));
  }
  if (config.tp_chunks < 1)
    problems.add("parallel.tp_chunks", config.tp_chunks, "must be 1 or more");
  problems.one_of("parallel.cp_form", config.cp_form, names_of(kContextForms));
  problems.one_of("parallel.cp_balance", config.cp_balance, names_of(kContextBalances));
  if (config.etp < 0 || (config.etp > 0 && config.tp > 0 && config.tp % config.etp != 0))
    problems.add("parallel.etp", config.etp,
                 formatted("must be 0 (all of parallel.tp) or divide parallel.tp = {}", config.tp));
  if (config.zero < 0 || config.zero > 3)
    problems.add("parallel.zero", config.zero, "must be 0, 1, 2 or 3");
  if (config.zero_shard < 0 || config.zero_shard > kMostRanks)
    problems.add("parallel.zero_shard", config.zero_shard,
                 formatted("must be in [0, {}]; 0: dp x cp", kMostRanks));
  problems.one_of("parallel.pp_regather", config.pp_regather,
                  std::vector<std::string>{"micro_batch", "update"});
  if (config.zero_prefetch < 0)
    problems.add("parallel.zero_prefetch", config.zero_prefetch, "must be 0 or more");
  if (config.zero_persist < 0)
    problems.add("parallel.zero_persist", config.zero_persist, "must be 0 (none) or more");
  problems.one_of("parallel.shared_memory", config.shared_memory,
                  std::vector<std::string>{"auto", "true", "false"});
  if (config.local_steps < 1)
    problems.add("parallel.local_steps", config.local_steps, "must be 1 or more");
  problems.one_of("parallel.offload", config.offload,
                  std::vector<std::string>{"none", "optimizer"});
  std::vector<std::string> schedules = names_of(pipeline::kSchedules);
  schedules.insert(schedules.end(), {"auto", "FILE"});
  std::error_code absent;
  const bool is_file = std::filesystem::is_regular_file(config.schedule, absent);
  problems.one_of("parallel.schedule", is_file ? "FILE" : config.schedule, schedules);
  if (config.in_flight < 0 || config.in_flight > kMostMicroBatches)
    problems.add("parallel.in_flight", config.in_flight,
                 formatted("must be in [0, {}]; 0: any number", kMostMicroBatches));
  if (config.virtual_stages < 1 || config.virtual_stages > kMostVirtualStages)
    problems.add("parallel.virtual_stages", config.virtual_stages,
                 formatted("must be in [1, {}]", kMostVirtualStages));
  problems.one_of("parallel.recompute", config.recompute, names_of(kRecomputes));
  if (!((config.bucket_mb >= 0 && config.bucket_mb <= kMostBucketMb) || config.bucket_mb == -1))
    problems.add(
        "parallel.bucket_mb", config.bucket_mb,
        formatted("must be in [0, {}] or -1; 0: one bucket, -1: by the number of data ranks",
                  kMostBucketMb));
}

comm::SharedMemory shared_memory_option(const ParallelConfig& config) {
  if (config.shared_memory == "true") return comm::SharedMemory::always;
  return config.shared_memory == "false" ? comm::SharedMemory::never
                                         : comm::SharedMemory::automatic;
}

bool has_launch_order(const ParallelConfig& config) {
  return config.pp == 1;
}

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t i = 1; i <= number; ++i)
    if (number % i == 0) found.push_back(i);
  return found;
}

bool divides(const ParallelConfig& config, int world_size) {
  std::int64_t left = world_size;
  for (const std::int64_t ranks :
       {config.tp, config.cp, config.pp}) {  // their product may overflow
    if (ranks < 1 || left % ranks != 0) return false;
    left /= ranks;
  }
  return true;
}

int data_ranks(const ParallelConfig& config, int world_size) {
  if (!divides(config, world_size)) {
    fail(
        ErrorKind::usage,
        "parallel.tp = {}, cp = {}, pp = {}: their product must divide the {} ranks started. Choose a product of {}, or start a multiple of it. A resumed run keeps its layout unless these keys are set",
        config.tp, config.cp, config.pp, world_size, joined(divisors(world_size), ", "));
  }
  return static_cast<int>(world_size / (config.tp * config.cp * config.pp));
}

bool divides_model(const ParallelConfig& config) {
  return config.zero > 2 || config.tp > 1 || config.cp > 1 || config.pp > 1 ||
         has_expert_grid(config);
}

std::int64_t shard_ranks(const ParallelConfig& config, std::int64_t data_ranks) {
  if (config.zero == 0) return 1;
  if (config.zero_shard == 0) return data_ranks;
  if (data_ranks % config.zero_shard != 0) {
    fail(ErrorKind::usage,
         "parallel.zero_shard = {} does not divide the {} data ranks (dp x cp); must be one of {}",
         config.zero_shard, data_ranks, joined(divisors(data_ranks), ", "));
  }
  return config.zero_shard;
}

bool keeps_gathered(const ParallelConfig& config) {
  return !config.zero_reshard || (config.pp > 1 && config.pp_regather == "update");
}

std::int64_t expert_tensor_ranks(const ParallelConfig& config) {
  return config.etp == 0 ? config.tp : config.etp;
}

bool has_expert_grid(const ParallelConfig& config) {
  return config.ep > 1 || expert_tensor_ranks(config) != config.tp;
}

int expert_data_ranks(const ParallelConfig& config, int world_size) {
  const std::int64_t ranks = data_ranks(config, world_size) * config.tp * config.cp;
  const std::int64_t etp = expert_tensor_ranks(config);
  if (ranks % (etp * config.ep) != 0) {
    fail(ErrorKind::usage,
         "parallel.ep = {} does not divide tp x cp x dp / etp = {}; must be one of {}", config.ep,
         ranks / etp, joined(divisors(ranks / etp), ", "));
  }
  return static_cast<int>(ranks / (etp * config.ep));
}

int expert_shard_ranks(const ParallelConfig& config, int world_size) {
  const std::int64_t data = data_ranks(config, world_size) * config.cp;
  if (config.zero == 0) return 1;
  const std::int64_t together = shard_ranks(config, data) * config.tp;
  const std::int64_t expert_ranks = expert_tensor_ranks(config) * config.ep;
  if (together % expert_ranks != 0 && expert_ranks % together != 0)
    fail(ErrorKind::usage,
         "parallel.zero_shard = {} x tp = {} and etp x ep = {}: one must divide the other",
         config.zero_shard, config.tp, expert_ranks);
  return static_cast<int>(std::max<std::int64_t>(together / expert_ranks, 1));
}

std::int64_t bucket_bytes(const ParallelConfig& config, std::int64_t data_ranks) {
  constexpr double kMiB = 1024 * 1024;
  // A ring sends a bucket in as many chunks as it has ranks; chunks of 1 MiB keep a network busy.
  const double mib = config.bucket_mb < 0 ? std::clamp(static_cast<double>(data_ranks), 25.0, 256.0)
                                          : config.bucket_mb;
  return static_cast<std::int64_t>(std::ceil(mib * kMiB));
}

}  // namespace trireme::parallel
