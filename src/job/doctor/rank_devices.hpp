#pragma once
#include <optional>
#include <string>
#include <vector>

namespace trireme::job {

/// The device that a rank would use. Checked before NCCL starts, because NCCL waits forever for a
/// rank without a GPU and refuses two ranks on one GPU.
struct RankDevice {
  std::string host;
  std::string gpu;         // identity of the GPU on the host; "": the CPU
  int num_gpus = 0;        // number of visible GPUs
  bool was_chosen = true;  // true: the user chose this kind of device; false: found automatically
  bool has_gpus = false;   // the scheduler gave this job GPUs
};

/// Converts to one line of text and back. Throws Error(internal) for invalid text.
std::string to_text(const RankDevice& device);
RankDevice rank_device_from(const std::string& text);

/// Returns "ranks 4, 5 (host n2)" for each host, joined by "; ".
std::string ranks_text(const std::vector<RankDevice>& ranks, const std::vector<std::size_t>& which);

struct DeviceProblem {
  std::string what;  // names the ranks
  std::string advice;
};

/// Returns the reason why training cannot use these devices: only some ranks have a GPU, several
/// ranks use one GPU, or ranks fell back to the CPU in a job that has GPUs.
std::optional<DeviceProblem> device_problem(const std::vector<RankDevice>& ranks);

}  // namespace trireme::job
