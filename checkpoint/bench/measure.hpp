#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

namespace trireme {

struct MeasureOptions {
  std::uint64_t bytes = 0;  // of the whole state
  std::int64_t repeats = 5;
  bool replicated = false;  // every rank holds and loads it whole; else each its own share
  bool keep_last = false;   // leave the last checkpoint in the folder
};

/// Wall seconds, one entry a repeat, the slowest rank's; the parts of a repeat follow one another,
/// so that a load on the machine meets them all.
struct MeasuredCheckpoint {
  int ranks = 1;
  std::uint64_t bytes = 0;
  std::vector<double> raw_write_s;   // plain pwrite and fsync of the same bytes, ranks sharing them
  std::vector<double> save_s;        // save_checkpoint, checksums on
  std::vector<double> raw_read_s;    // plain read of what each rank holds, past the page cache
  std::vector<double> load_s;        // load_tensors, checked, likewise
  std::vector<double> stall_s;       // a save behind half a second of work: start, wait for copy
  std::vector<double> step_extra_s;  // the stall, and what the copy and the write slow that work by
  double save_cpu_s = 0;  // processor seconds of all ranks' processes, mean of the repeats
  double raw_write_cpu_s = 0;
  double load_cpu_s = 0;
  double raw_read_cpu_s = 0;
  std::uint64_t copy_bytes = 0;  // memory a save behind training keeps, this rank
};

/// Collective. Writes below `folder`, which must not exist, and removes it in the end (unless
/// keep_last). Every load is compared with what was saved. Throws Error(usage) for an existing
/// folder or a size of 0, Error(resource) when the disk refuses.
MeasuredCheckpoint measure_checkpoint(const std::filesystem::path& folder,
                                      const MeasureOptions& options, Communicator& world);

/// Medians, as a table for people or one JSON object; rates in MB/s (10^6), ratios to the raw
/// operation of the same repeat.
std::string measured_text(const MeasuredCheckpoint& measured);
std::string measured_json(const MeasuredCheckpoint& measured);

}  // namespace trireme
