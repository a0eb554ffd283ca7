#pragma once
#include <optional>
#include <string>
#include <vector>

namespace trireme {

/// What a rank would compute on, before any communicator of devices exists: NCCL waits for ever for a
/// rank that has no GPU, and refuses two on one.
struct RankDevice {
  std::string host;
  std::string gpu;         // its identity on that host; "": the CPU
  int num_gpus = 0;        // that it sees
  bool was_chosen = true;  // told to use this kind of device; false: it took what it found
  bool has_gpus = false;   // the scheduler gave this job GPUs
};

/// One line of text, and back. Throws Error(internal) for another text.
std::string to_text(const RankDevice& device);
RankDevice rank_device_from(const std::string& text);

/// "ranks 4, 5 (host n2)", hosts one after another.
std::string ranks_text(const std::vector<RankDevice>& ranks, const std::vector<std::size_t>& which);

struct DeviceProblem {
  std::string what;  // names the ranks
  std::string advice;
};

/// What forbids a training on these devices: GPUs on some ranks alone, several ranks on one GPU, CPUs
/// that nobody asked for in a job that has GPUs.
std::optional<DeviceProblem> device_problem(const std::vector<RankDevice>& ranks);

}  // namespace trireme
