#include "job/doctor/rank_facts.hpp"

#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <thread>

#include "comm/liveness/heartbeat_wire.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "core/hash/xxh3.hpp"
#include "core/process/allowed_cpus.hpp"
#include "scheduler/scheduler.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration): no POSIX header declares it

namespace trireme::job {
namespace {

constexpr const char* kWhereFacts = "a rank's facts";

/// Prefixes of variables that must be equal on all ranks.
constexpr std::array<std::string_view, 6> kCompared{"NCCL_",    "OMPI_MCA_",        "UCX_",
                                                    "OMP_NUM_", "LD_LIBRARY_PATH=", "TRIREME_"};

/// Prefixes of variables that a launcher sets for each rank or node, so they may differ.
constexpr std::array<std::string_view, 3> kOwn{"OMPI_MCA_orte_", "OMPI_MCA_ess_",
                                               "OMPI_MCA_btl_vader"};

std::map<std::string, std::string> compared_variables() {
  std::map<std::string, std::string> found;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto begins = [&](std::string_view prefix) { return text.starts_with(prefix); };
    if (std::none_of(kCompared.begin(), kCompared.end(), begins) ||
        std::any_of(kOwn.begin(), kOwn.end(), begins))
      continue;
    const std::size_t equals = text.find('=');
    found[std::string(text.substr(0, equals))] = text.substr(equals + 1);
  }
  return found;
}

std::int64_t hard_limit(decltype(RLIMIT_NOFILE) what) {
  rlimit limit{};
  if (::getrlimit(what, &limit) != 0 || limit.rlim_max == RLIM_INFINITY) return -1;
  return static_cast<std::int64_t>(limit.rlim_max);
}

std::int64_t free_in_shared_memory() {
  struct statvfs info {};

  if (::statvfs("/dev/shm", &info) != 0 || ::access("/dev/shm", W_OK) != 0) return -1;
  return static_cast<std::int64_t>(info.f_bavail) * static_cast<std::int64_t>(info.f_frsize);
}

std::string program_hash() {
  try {
    return xxh3_128_hex(read_file("/proc/self/exe"));
  } catch (const Error&) {
    return "";
  }
}

std::vector<std::string> interfaces_up() {
  std::vector<std::string> names;
  for (const comm::heartbeat::Interface& one : comm::heartbeat::own_interfaces()) {
    if (one.name != "lo") names.push_back(one.name);
  }
  return names;
}

template <class T>
T list_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_structured())
    fail(ErrorKind::internal, "{}: {} must be an array or object", kWhereFacts, key);
  return found->get<T>();
}

/// Calls visit(key, member) for every fact except the device.
template <class Facts, class Visit>
void for_each_fact(Facts& facts, Visit&& visit) {
  visit("node", facts.node);
  visit("gpu_free_bytes", facts.gpu_free_bytes);
  visit("gpu_total_bytes", facts.gpu_total_bytes);
  visit("cuda_driver", facts.cuda_driver);
  visit("cuda_runtime", facts.cuda_runtime);
  visit("cpus", facts.cpus);
  visit("node_cpus", facts.node_cpus);
  visit("threads", facts.threads);
  visit("max_files", facts.max_files);
  visit("max_locked_bytes", facts.max_locked_bytes);
  visit("has_infiniband", facts.has_infiniband);
  visit("shm_free_bytes", facts.shm_free_bytes);
  visit("interfaces", facts.interfaces);
  visit("variables", facts.variables);
  visit("binary", facts.binary);
  visit("clock_s", facts.clock_s);
}

}  // namespace

RankFacts own_facts(const comm::LaunchInfo& launch, std::int64_t threads) {
  RankFacts facts;
  facts.device.host = launch.hostname;
  facts.device.has_gpus = scheduler::scheduler().gave_gpus();
  facts.node = launch.node;
  const std::vector<int> cpus = allowed_cpus();
  facts.cpus.assign(cpus.begin(), cpus.end());
  facts.node_cpus = std::thread::hardware_concurrency();
  facts.threads = threads;
  facts.max_files = hard_limit(RLIMIT_NOFILE);
  facts.max_locked_bytes = hard_limit(RLIMIT_MEMLOCK);
  std::error_code absent;
  facts.has_infiniband = std::filesystem::exists("/sys/class/infiniband", absent) &&
                         !std::filesystem::is_empty("/sys/class/infiniband", absent);
  facts.shm_free_bytes = free_in_shared_memory();
  facts.interfaces = interfaces_up();
  facts.variables = compared_variables();
  facts.binary = program_hash();
  return facts;
}

std::vector<RankDevice> devices_of(const std::vector<RankFacts>& ranks) {
  std::vector<RankDevice> devices;
  for (const RankFacts& one : ranks) devices.push_back(one.device);
  return devices;
}

std::string to_text(const RankFacts& facts) {
  Json json{{"device", to_text(facts.device)}};
  for_each_fact(facts, [&](const char* key, const auto& value) { json[key] = value; });
  return json_text(json);
}

RankFacts rank_facts_from(const std::string& text) {
  try {
    const Json json = parse_json(text, kWhereFacts);
    RankFacts facts;
    facts.device = rank_device_from(json_get<std::string>(json, "device", kWhereFacts));
    for_each_fact(facts, [&](const char* key, auto& value) {
      using Value = std::decay_t<decltype(value)>;
      if constexpr (std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string>)
        value = json_get<Value>(json, key, kWhereFacts);
      else
        value = list_in<Value>(json, key);
    });
    return facts;
  } catch (const Error& error) {
    throw Error(ErrorKind::internal, error.what());
  }
}

}  // namespace trireme::job
