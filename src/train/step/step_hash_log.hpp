#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "core/files/file.hpp"
#include "core/writer_thread.hpp"
#include "data/batch.hpp"

namespace trireme::train {

/// Returns a hash of one rank's work in one step: the bits of loss, gradient norm and learning
/// rate, the sample indices, and a hash of the master weights (0 if they were not hashed). The
/// step hash log sums these numbers over all ranks, so `rank` is part of each hash.
std::uint64_t step_trace(int rank, std::span<const data::Batch> batches, double loss_sum,
                         double grad_norm, double lr, std::uint64_t weights_hash);

/// The step hash log (`chain.txt` in the run directory): one line "step hash" per step with H_k =
/// XXH3-128(H_{k-1}, k, sum over ranks of step_trace); H_0 is the hash of nothing. Two runs on the
/// same layout took bitwise equal steps exactly if their last lines are equal.
///
/// The file survives a kill. A resumed run truncates it to the step of its checkpoint and
/// continues from the checkpoint's hash. Repeated steps are compared with the lines from before
/// the kill.
class StepHashLog {
 public:
  /// `writes`: true on the rank that writes the file (rank 0). Other ranks only keep the value.
  /// `files`: the thread that appends the lines; null: the caller appends them.
  StepHashLog(std::filesystem::path file, bool writes, WriterThread* files = nullptr);

  /// Continues after `step` with the value of a checkpoint; 0 and "" start a new run. Call it once,
  /// before append(). Throws Error(resource) if the file cannot be written.
  void start(std::int64_t step, const std::string& value);

  /// Adds the next step. Warns once if a repeated step differs from its earlier line.
  void append(std::int64_t step, std::uint64_t trace);

  [[nodiscard]] const std::string& value() const { return value_; }

  [[nodiscard]] std::int64_t step() const { return step_; }

 private:
  std::filesystem::path file_;
  bool writes_;
  WriterThread* files_;
  std::shared_ptr<Fd> fd_;
  std::int64_t step_ = 0;
  std::string value_;
  std::map<std::int64_t, std::string> before_;  // lines after the checkpoint, from before a kill
};

}  // namespace trireme::train
