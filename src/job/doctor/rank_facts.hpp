#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "comm/session.hpp"
#include "job/doctor/rank_devices.hpp"

namespace trireme {

/// What one rank sees of the place where it runs.
struct RankFacts {
  RankDevice device;
  std::int64_t node = 0;
  std::int64_t gpu_free_bytes = 0;  // of its GPU; 0 without one
  std::int64_t gpu_total_bytes = 0;
  std::int64_t cuda_driver = 0;  // highest CUDA version of the driver: 12020 for 12.2; 0: no driver
  std::int64_t cuda_runtime = 0;      // that the program was built for; 0: none
  std::vector<std::int64_t> cpus;     // that it may run on
  std::int64_t node_cpus = 0;         // of the machine
  std::int64_t threads = 1;           // that it would start
  std::int64_t max_files = 0;         // ulimit -n, hard
  std::int64_t max_locked_bytes = 0;  // ulimit -l; -1: unlimited
  bool has_infiniband = false;
  std::int64_t shm_free_bytes = -1;     // of /dev/shm; -1: it is not there, or cannot be written
  std::vector<std::string> interfaces;  // names of those that are up, but loopback
  std::map<std::string, std::string>
      variables;       // NCCL_*, OMPI_MCA_*, UCX_*, OMP_*, the scheduler's, ...
  std::string binary;  // hash of the program
  double clock_s =
      0;  // Unix time at a moment that is the same on all ranks, as far as a barrier goes
};

/// Of this process: all but the device and CUDA, which the caller knows, and the clock.
RankFacts own_facts(const LaunchInfo& launch, std::int64_t threads);

/// One line of text, and back. Throws Error(internal) for another text.
std::string to_text(const RankFacts& facts);
RankFacts rank_facts_from(const std::string& text);

}  // namespace trireme
