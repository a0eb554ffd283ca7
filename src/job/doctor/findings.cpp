#include "job/doctor/findings.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "core/counted.hpp"
#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::job {
namespace {

using enum Finding::Severity;
using Facts = std::vector<RankFacts>;
using Which = std::vector<std::size_t>;

constexpr double kClockSkew_s = 2;
constexpr double kGpuInUse = 0.1;  // fraction of GPU memory that other processes may use
constexpr std::int64_t kShmBytesARank = std::int64_t{64} << 20;
constexpr std::int64_t kFilesBeside = 256;  // files for libraries, shards and MPI connections

Which where(const Facts& ranks, const std::function<bool(const RankFacts&)>& holds) {
  Which which;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (holds(ranks[rank])) which.push_back(rank);
  }
  return which;
}

/// Returns the ranks of each node.
std::map<std::int64_t, Which> by_node(const Facts& ranks) {
  std::map<std::int64_t, Which> nodes;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) nodes[ranks[rank].node].push_back(rank);
  return nodes;
}

class EnvironmentChecks {
 public:
  explicit EnvironmentChecks(const Facts& ranks) : ranks_(ranks), devices_(devices_of(ranks)) {}

  std::vector<Finding> take() { return std::move(findings_); }

  void check_gpus() {
    const auto problem = device_problem(devices_);
    const Which without =
        where(ranks_, [](const RankFacts& one) { return one.device.gpu.empty(); });
    if (problem) {
      findings_.push_back(
          {"gpu-ranks", error, "", problem->what, problem->advice, hosts_of(without)});
    }
    // A driver for an older CUDA version works if the major version is the same (CUDA's minor
    // version compatibility).
    const Which old_driver = where(ranks_, [](const RankFacts& one) {
      return one.cuda_driver > 0 && one.cuda_driver / 1000 < one.cuda_runtime / 1000;
    });
    if (!old_driver.empty()) {
      const RankFacts& one = ranks_[old_driver.front()];
      add("cuda-driver-old", error, old_driver,
          formatted("the NVIDIA driver knows CUDA {}, the program was built for {}",
                    version(one.cuda_driver), version(one.cuda_runtime)),
          "build with a LibTorch for the driver's CUDA (TRIREME_CUDA=12 bin/demo), or install a newer driver");
    }
    on_ranks(
        "gpu-in-use", warning,
        [](const RankFacts& one) {
          return one.gpu_total_bytes > 0 &&
                 static_cast<double>(one.gpu_total_bytes - one.gpu_free_bytes) >
                     kGpuInUse * static_cast<double>(one.gpu_total_bytes);
        },
        "its GPU's memory is already in use", "look for other processes (nvidia-smi)");
    for (const auto& [node, which] : by_node(ranks_)) {
      std::set<std::string> used;
      int seen = 0;
      for (const std::size_t rank : which) {
        if (!devices_[rank].gpu.empty()) used.insert(devices_[rank].gpu);
        seen = std::max(seen, devices_[rank].num_gpus);
      }
      if (seen > 1 && !used.empty() && static_cast<int>(used.size()) < seen) {
        add_host("gpu-idle", warning, which, formatted("{} of {} GPUs are used", used.size(), seen),
                 "start one rank per GPU: --ntasks-per-node, mpirun -n");
      }
    }
  }

  void check_cpus() {
    for (const auto& [node, which] : by_node(ranks_)) {
      std::set<std::int64_t> cpus;
      std::int64_t threads = 0;
      std::int64_t of_masks = 0;
      for (const std::size_t rank : which) {
        cpus.insert(ranks_[rank].cpus.begin(), ranks_[rank].cpus.end());
        of_masks += static_cast<std::int64_t>(ranks_[rank].cpus.size());
        threads += ranks_[rank].threads;
      }
      const auto distinct = static_cast<std::int64_t>(cpus.size());
      const bool bound = distinct < ranks_[which.front()].node_cpus;
      if (bound && of_masks > distinct && which.size() > 1 && threads > distinct) {
        add_host(
            "cpus-shared", warning, which,
            formatted("{} ranks are bound to the same {}", which.size(), counted(distinct, "CPU")),
            formatted("{}, or mpirun --bind-to none", scheduler::scheduler().words().bind_advice));
      } else if (threads > distinct) {
        add_host("threads-many", warning, which,
                 formatted("{} of {} on {}", counted(threads, "thread"),
                           counted(which.size(), "rank"), counted(distinct, "CPU")),
                 "lower OMP_NUM_THREADS, or raise --cpus-per-task");
      }
    }
  }

  void check_limits() {
    const auto size = static_cast<std::int64_t>(ranks_.size());
    const std::int64_t needed = size + kFilesBeside;
    if (size > 1 && ranks_[0].max_files >= 0 && ranks_[0].max_files < needed) {
      add_host("files-few", ranks_[0].max_files < size + 32 ? error : warning, {0},
               formatted("rank 0 may open {} files (ulimit -Hn), {} ranks need about {}",
                         ranks_[0].max_files, size, needed),
               formatted("raise the hard limit ({}), or start fewer ranks",
                         scheduler::scheduler().words().open_files_advice));
    }
    on_ranks(
        "memory-locked-little", warning,
        [](const RankFacts& one) { return one.has_infiniband && one.max_locked_bytes >= 0; },
        "InfiniBand is present, but locked memory is limited (ulimit -l)",
        scheduler::scheduler().words().locked_memory_advice);
    for (const auto& [node, which] : by_node(ranks_)) {
      const RankFacts& first = ranks_[which.front()];
      const std::int64_t wanted = kShmBytesARank * static_cast<std::int64_t>(which.size());
      if (first.shm_free_bytes < 0) {
        add_host("shm-absent", which.size() > 1 ? error : warning, which,
                 "/dev/shm is missing or cannot be written",
                 "give the container shared memory (--shm-size, --ipc=host)");
      } else if (which.size() > 1 && first.shm_free_bytes < wanted) {
        add_host("shm-small", warning, which,
                 formatted("/dev/shm has {} free, {} ranks need about {}",
                           format_bytes(static_cast<double>(first.shm_free_bytes)), which.size(),
                           format_bytes(static_cast<double>(wanted))),
                 "clear it, or give the container more (--shm-size, --ipc=host)");
      }
    }
  }

  void check_environment() {
    std::set<std::string> names;
    for (const RankFacts& one : ranks_) {
      for (const auto& [name, value] : one.variables) names.insert(name);
    }
    for (const std::string& name : names) {
      const auto value_of = [&](const RankFacts& one) {
        const auto found = one.variables.find(name);
        return found == one.variables.end() ? std::string("not set") : found->second;
      };
      const std::string first = value_of(ranks_[0]);
      const Which others =
          where(ranks_, [&](const RankFacts& one) { return value_of(one) != first; });
      if (others.empty()) continue;
      add("environment-differs", warning, others,
          formatted("{} is {}, on rank 0 {}", name, value_of(ranks_[others.front()]), first),
          formatted("{}; mpirun -x NAME", scheduler::scheduler().words().environment_advice));
    }
    check_interfaces();
    const Which alone = where(ranks_, [](const RankFacts& one) { return one.interfaces.empty(); });
    if (by_node(ranks_).size() > 1 && !alone.empty())
      add("network-none", error, alone, "no network interface is up", "exclude the node");
    const Which other_program =
        where(ranks_, [&](const RankFacts& one) { return one.binary != ranks_[0].binary; });
    if (!other_program.empty())
      add("binary-differs", error, other_program, "the program differs from that of rank 0",
          "start the same build on all nodes, from a shared directory (TRIREME_BIN)");
  }

  void check_clocks() {
    for (const auto& [node, which] : by_node(ranks_)) {
      const double skew_s = ranks_[which.front()].clock_s - ranks_[0].clock_s;
      if (std::abs(skew_s) < kClockSkew_s) continue;
      add_host(
          "clock-skew", warning, which,
          formatted("its clock is {} {} rank 0's", format_duration(std::abs(skew_s)),
                    skew_s > 0 ? "ahead of" : "behind"),
          "times in logs and the end of the job are wrong: ask the administrators to set up NTP");
    }
  }

 private:
  [[nodiscard]] std::vector<std::string> hosts_of(const Which& which) const {
    std::set<std::string> hosts;
    for (const std::size_t rank : which) hosts.insert(devices_[rank].host);
    return {hosts.begin(), hosts.end()};
  }

  void add(const std::string& id, Finding::Severity severity, const Which& which,
           const std::string& what, const std::string& advice) {
    findings_.push_back({id, severity, ranks_text(devices_, which), what, advice, hosts_of(which)});
  }

  /// Adds a finding about the host of these ranks, which must all be on one host.
  void add_host(const std::string& id, Finding::Severity severity, const Which& which,
                const std::string& what, const std::string& advice) {
    const std::string& host = devices_[which.front()].host;
    findings_.push_back({id, severity, host, what, advice, {host}});
  }

  void on_ranks(const std::string& id, Finding::Severity severity,
                const std::function<bool(const RankFacts&)>& holds, const std::string& what,
                const std::string& advice) {
    const Which which = where(ranks_, holds);
    if (!which.empty()) add(id, severity, which, what, advice);
  }

  /// Returns "12.2" for 12020.
  static std::string version(std::int64_t number) {
    return formatted("{}.{}", number / 1000, number % 1000 / 10);
  }

  /// Returns "NAME=VALUE" if NCCL_SOCKET_IFNAME or OMPI_MCA_btl_tcp_if_include names an interface
  /// that is not up; "" otherwise.
  static std::string absent_interface(const RankFacts& one) {
    for (const char* name : {"NCCL_SOCKET_IFNAME", "OMPI_MCA_btl_tcp_if_include"}) {
      const auto found = one.variables.find(name);
      if (found == one.variables.end() || found->second.empty()) continue;
      const std::string& value = found->second;
      // Lists of excluded interfaces, lists of several names, and networks are not checked.
      if (value.find_first_of("^,/") != std::string::npos) continue;
      const bool is_exact = value.front() == '=' || name[0] == 'O';
      const std::string wanted = value.front() == '=' ? value.substr(1) : value;
      const auto fits = [&](const std::string& interface) {
        return is_exact ? interface == wanted : interface.starts_with(wanted);
      };
      if (wanted != "lo" && std::none_of(one.interfaces.begin(), one.interfaces.end(), fits))
        return formatted("{}={}", name, value);
    }
    return "";
  }

  void check_interfaces() {
    const Which which =
        where(ranks_, [](const RankFacts& one) { return !absent_interface(one).empty(); });
    if (which.empty()) return;
    const RankFacts& one = ranks_[which.front()];
    const std::string name = absent_interface(one);
    const bool is_used = !one.device.gpu.empty() || name.starts_with("OMPI");
    const std::vector<std::string> common = common_interfaces();
    add("interface-absent", is_used ? error : warning, which,
        formatted(
            "{} names a network interface that is not up on this node (interfaces that are up: {})",
            name, joined(one.interfaces, ", ")),
        common.empty()
            ? "no interface name exists on all hosts: unset it, or give a network (10.1.0.0/16)"
            : formatted("name one that all hosts have: {}", joined(common, ", ")));
  }

  /// Returns the names of interfaces that are up on the hosts of all ranks.
  [[nodiscard]] std::vector<std::string> common_interfaces() const {
    std::vector<std::string> common = ranks_[0].interfaces;
    for (const RankFacts& one : ranks_) {
      std::erase_if(common, [&](const std::string& name) {
        return std::count(one.interfaces.begin(), one.interfaces.end(), name) == 0;
      });
    }
    return common;
  }

  const Facts& ranks_;
  std::vector<RankDevice> devices_;
  std::vector<Finding> findings_;
};

}  // namespace

std::string Finding::line() const {
  return formatted("{}{}{}{}{}", where, where.empty() ? "" : ": ", what, advice.empty() ? "" : "; ",
                   advice);
}

const char* severity_name(Finding::Severity severity) {
  switch (severity) {
    case Finding::Severity::note:
      return "note";
    case Finding::Severity::warning:
      return "warning";
    case Finding::Severity::error:
      break;
  }
  return "error";
}

std::vector<Finding> findings_of(const std::vector<RankFacts>& ranks) {
  if (ranks.empty()) return {};
  EnvironmentChecks checks(ranks);
  checks.check_gpus();
  checks.check_cpus();
  checks.check_limits();
  checks.check_environment();
  checks.check_clocks();
  return checks.take();
}

std::vector<std::string> hosts_to_exclude(const std::vector<Finding>& findings,
                                          const std::vector<std::string>& all_hosts) {
  std::set<std::string> hosts;
  for (const Finding& one : findings) {
    const bool is_choice = !one.hosts.empty() && one.hosts.size() < all_hosts.size();
    if (one.severity == Finding::Severity::error && is_choice)
      hosts.insert(one.hosts.begin(), one.hosts.end());
  }
  if (hosts.size() >= all_hosts.size()) return {};  // no host would be left
  return {hosts.begin(), hosts.end()};
}

}  // namespace trireme::job
