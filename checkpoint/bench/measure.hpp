#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace trireme::checkpoint {

struct MeasureOptions {
  std::uint64_t bytes = 0;  // size of the whole state
  std::int64_t repeats = 5;
  bool replicated = false;  // true: every rank holds and loads the whole state; false: its shard
  bool keep_last = false;   // leave the last checkpoint in the directory
};

/// Wall time in seconds on the slowest rank, one entry per repeat. The phases of one repeat run one
/// after another, so that other load on the machine affects all phases.
struct MeasuredCheckpoint {
  int ranks = 1;
  std::uint64_t bytes = 0;
  std::vector<double>
      raw_write_s;                 // plain pwrite and fsync of the same bytes, split over the ranks
  std::vector<double> save_s;      // save_checkpoint, checksums on
  std::vector<double> raw_read_s;  // plain read of the bytes of each rank, past the page cache
  std::vector<double> load_s;      // load_tensors with checks, past the page cache
  std::vector<double> stall_s;  // an asynchronous save during 0.5 s of work: start, wait for copy
  std::vector<double> step_extra_s;  // the stall and the slowdown of that work by copy and write
  double save_cpu_s = 0;  // CPU time of the processes of all ranks, mean over the repeats
  double raw_write_cpu_s = 0;
  double load_cpu_s = 0;
  double raw_read_cpu_s = 0;
  std::uint64_t copy_bytes = 0;  // memory that an asynchronous save keeps on this rank
};

/// Measures in the new `directory` and removes it at the end (unless
/// keep_last). Compares every loaded state with the saved state. Collective. Throws Error(usage)
/// for an existing directory or a size of 0, Error(resource) if a disk operation fails.
MeasuredCheckpoint measure_checkpoint(const std::filesystem::path& directory,
                                      const MeasureOptions& options, comm::Communicator& world);

/// Formats the medians as a table for people or as one JSON object. Rates are in MB/s (10^6
/// bytes/s). Ratios compare with the raw operation of the same repeat.
std::string measured_text(const MeasuredCheckpoint& measured);
std::string measured_json(const MeasuredCheckpoint& measured);

}  // namespace trireme::checkpoint
