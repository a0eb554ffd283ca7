#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "core/files/file.hpp"
#include "data/batch.hpp"

namespace trireme {

/// What one rank did in one step, as one number: the bits of its loss, gradient norm and learning
/// rate, the samples it saw and the hash of its main weights, 0 where they are not looked at. The
/// chain takes the sum over all ranks, so `rank` is part of it.
std::uint64_t step_trace(int rank, std::span<const Batch> batches, double loss_sum,
                         double grad_norm, double lr, std::uint64_t weights_hash);

/// The history of a run in one line: H_k = XXH3-128(H_{k-1}, k, sum over ranks
/// of step_trace), H_0 of nothing.
///
/// `chain.txt` in the run folder has a line "step hash" for every step; two runs on the same layout
/// took the same steps, bit for bit, exactly when their last lines are equal. The file survives a
/// kill; a resumed run cuts it back to its checkpoint, whose value goes on. Steps that are taken
/// again are compared with what the killed part of the run had noted.
class StepChain {
 public:
  /// `writes`: this rank keeps the file (rank 0); the others only the value.
  StepChain(std::filesystem::path file, bool writes);

  /// Goes on after `step` with the value that a checkpoint holds; call once, before append().
  /// Step 0 and "": a new run. Throws Error(resource) if the file cannot be written.
  void start(std::int64_t step, const std::string& value);

  /// The next step. Warns, once, when it differs from what was noted before for the same step.
  void append(std::int64_t step, std::uint64_t trace);

  [[nodiscard]] const std::string& value() const { return value_; }

  [[nodiscard]] std::int64_t step() const { return step_; }

 private:
  std::filesystem::path file_;
  bool writes_;
  Fd fd_;
  std::int64_t step_ = 0;
  std::string value_;
  std::map<std::int64_t, std::string> before_;  // steps after the checkpoint, noted before a kill
};

}  // namespace trireme
