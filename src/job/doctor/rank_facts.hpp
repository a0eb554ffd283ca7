#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/session.hpp"
#include "job/doctor/rank_devices.hpp"

namespace trireme::job {

/// Facts about the environment of one rank.
struct RankFacts {
  RankDevice device;
  std::int64_t node = 0;
  std::int64_t gpu_free_bytes = 0;  // free memory of its GPU; 0 without a GPU
  std::int64_t gpu_total_bytes = 0;
  std::int64_t cuda_driver = 0;  // highest CUDA version of the driver: 12020 for 12.2; 0: no driver
  std::int64_t cuda_runtime = 0;      // CUDA version of the build; 0: none
  std::vector<std::int64_t> cpus;     // CPUs that the rank may use
  std::int64_t node_cpus = 0;         // number of CPUs of the node
  std::int64_t threads = 1;           // number of threads that the rank would start
  std::int64_t max_files = 0;         // ulimit -n, hard
  std::int64_t max_locked_bytes = 0;  // ulimit -l; -1: unlimited
  bool has_infiniband = false;
  std::int64_t shm_free_bytes = -1;     // free space of /dev/shm; -1: missing or not writable
  std::vector<std::string> interfaces;  // names of interfaces that are up, without loopback
  std::map<std::string, std::string> variables;  // NCCL_*, OMPI_MCA_*, UCX_*, OMP_NUM_*, ...
  std::string binary;                            // hash of the program
  double clock_s = 0;                            // Unix time right after a barrier
};

/// Returns the facts of this process. The caller must add device, CUDA versions and clock.
RankFacts own_facts(const comm::LaunchInfo& launch, std::int64_t threads);

std::vector<RankDevice> devices_of(const std::vector<RankFacts>& ranks);

/// Convert facts to one line of text and back. rank_facts_from() throws Error(internal) for invalid
/// text.
std::string to_text(const RankFacts& facts);
RankFacts rank_facts_from(const std::string& text);

}  // namespace trireme::job
