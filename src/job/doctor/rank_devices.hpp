#pragma once
#include <optional>
#include <string>
#include <vector>

namespace trireme::job {

/// The device that a rank would use. Ranks check their devices before NCCL starts, because NCCL
/// waits forever for a rank without a GPU and refuses two ranks on one GPU.
struct RankDevice {
  std::string host;
  std::string gpu;   // identity of the GPU on the host; "": the CPU
  int num_gpus = 0;  // number of visible GPUs
  // true: the user chose this kind of device; false: it was chosen automatically
  bool was_chosen = true;
  bool has_gpus = false;  // the scheduler gave this job GPUs
};

/// Converts to one line of text and back. Throws Error(internal) for invalid text.
std::string to_text(const RankDevice& device);
RankDevice rank_device_from(const std::string& text);

/// Returns the ranks `which`, grouped by host: "ranks 4, 5 (host n2); rank 8 (host n3)".
std::string ranks_text(const std::vector<RankDevice>& ranks, const std::vector<std::size_t>& which);

struct DeviceProblem {
  std::string what;  // names the ranks
  std::string advice;
};

/// Returns a problem if training cannot use these devices; none if it can. Problems are: only some
/// ranks have a GPU, several ranks use the same GPU, or ranks use the CPU automatically although
/// the job has GPUs.
std::optional<DeviceProblem> device_problem(const std::vector<RankDevice>& ranks);

}  // namespace trireme::job
