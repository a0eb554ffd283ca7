#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::job {

/// Files with names that begin with this prefix test whether all nodes see a directory. They exist
/// only for moments (doctor/shared_directories.hpp), or after a process was killed in that moment.
constexpr std::string_view kProbePrefix = ".trireme-doctor.";

/// The paths of the files in a run directory. The README of src/train describes the files.
struct RunDirectory {
  std::filesystem::path root;

  [[nodiscard]] std::filesystem::path config() const { return root / "config.toml"; }

  [[nodiscard]] std::filesystem::path metrics() const { return root / "metrics.jsonl"; }

  /// The times of each rank (metrics.per_rank).
  [[nodiscard]] std::filesystem::path ranks() const { return root / "ranks.jsonl"; }

  /// The generated samples of all validations (metrics.samples).
  [[nodiscard]] std::filesystem::path samples() const { return root / "samples.jsonl"; }

  /// The memory and the traffic of each rank in one optimizer step: counted values
  /// and the values from formulas.
  [[nodiscard]] std::filesystem::path layout() const { return root / "layout.json"; }

  /// The ranks of the newest start: hosts, devices, mesh coordinates, hashes of the parameters.
  [[nodiscard]] std::filesystem::path distribution() const { return root / "distribution.json"; }

  /// The peak FLOP/s of each device, layout and dtype, from which MFU is computed
  /// (run/compute_peak.hpp).
  [[nodiscard]] std::filesystem::path peak() const { return root / "peak.json"; }

  /// The event log of all attempts and jobs (event_log.hpp).
  [[nodiscard]] std::filesystem::path event_log() const { return root / "journal.jsonl"; }

  /// The status of the run for scripts (write_status()).
  [[nodiscard]] std::filesystem::path status() const { return root / "status.json"; }

  [[nodiscard]] std::filesystem::path chain() const { return root / "chain.txt"; }

  [[nodiscard]] std::filesystem::path stop_file() const { return root / "STOP"; }

  [[nodiscard]] std::filesystem::path save_file() const { return root / "SAVE"; }

  /// The file that requests a profile of a live run, and the directory of all profiles.
  [[nodiscard]] std::filesystem::path profile_file() const { return root / "PROFILE"; }

  [[nodiscard]] std::filesystem::path profiles() const { return root / "profile"; }

  /// Directories with one file per rank: failure reports, stack traces, skipped steps.
  [[nodiscard]] std::filesystem::path failure_reports() const { return root / "verdicts"; }

  [[nodiscard]] std::filesystem::path stacks() const { return root / "stacks"; }

  [[nodiscard]] std::filesystem::path skipped() const { return root / "skipped"; }

  /// Copies of programs and configuration for queued jobs, one subdirectory per job
  /// (submit/submission.hpp).
  [[nodiscard]] std::filesystem::path submit() const { return root / "submit"; }

  [[nodiscard]] std::filesystem::path checkpoints() const { return root / "checkpoints"; }

  /// Returns true if this is the directory of a run: it has Trireme's status.json or
  /// checkpoints/step-*.
  [[nodiscard]] bool holds_run() const;

  /// Returns true if it has checkpoints/step-*.
  [[nodiscard]] bool holds_checkpoint() const;

  /// Returns true if the directory is empty or contains only files of a start that failed early.
  [[nodiscard]] bool is_blank() const;

  /// Prepares the directory for a run. Creates it if it is missing. It may also exist if it
  /// is_blank() or holds_run(). Throws Error(usage) if it has any other content.
  void prepare() const;

  /// Throws Error(usage), which says that the directory is neither empty nor a run.
  [[noreturn]] void refuse_foreign() const;
};

/// Returns "rank-00003.json" for rank 3 and ".json".
std::string rank_file(int rank, const std::string& extension);

/// Writes status.json for scripts: {"state": "running" | "done" | "stopped" | "failed",
/// "exit_code": N, "step": N, "committed": N}. The file is replaced atomically. `committed` is the
/// newest step with a checkpoint (-1: none yet). If it is not given, the value of the previous
/// status.json is kept. A `reason` that is not empty becomes the member "reason".
void write_status(const RunDirectory& folder, const std::string& state, int code, std::int64_t step,
                  std::optional<std::int64_t> committed = std::nullopt,
                  const std::string& reason = "");

/// Returns the newest step that this run has committed, even if the checkpoint was deleted since
/// then; -1: none. Reads status.json; if that fails, reads the event log.
std::int64_t committed_step(const RunDirectory& folder);

/// A job that `trireme submit` has queued for a run: `submit/N/job.json` in the run directory.
struct SubmissionRecord {
  std::string job;         // job id of the scheduler; for dependent jobs, the id of the job array
  std::int64_t chain = 1;  // number of dependent jobs that run one after another
  double time = 0;         // Unix time of the submission
};

/// Writes the record into `place`, the directory of this submission (submit/N). Throws
/// Error(resource).
void write_submission(const std::filesystem::path& place, const SubmissionRecord& record);

/// Returns the submissions of a run, oldest first. Skips directories without a readable record.
std::vector<SubmissionRecord> read_submissions(const RunDirectory& folder);

}  // namespace trireme::job
