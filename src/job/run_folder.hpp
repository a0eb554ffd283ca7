#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace trireme {

/// Places inside a run's folder; the README of src/train lists them.
struct RunFolder {
  std::filesystem::path root;

  [[nodiscard]] std::filesystem::path config() const { return root / "config.toml"; }

  [[nodiscard]] std::filesystem::path metrics() const { return root / "metrics.jsonl"; }

  /// What the ranks hold and send, counted in an update beside the formulas.
  [[nodiscard]] std::filesystem::path layout() const { return root / "layout.json"; }

  /// The compute peak that MFU is a share of, for each device, layout and dtype (run/kept_peak.hpp).
  [[nodiscard]] std::filesystem::path peak() const { return root / "peak.json"; }

  /// What happened, over all legs and jobs (journal.hpp).
  [[nodiscard]] std::filesystem::path journal() const { return root / "journal.jsonl"; }

  /// A view of the journal for scripts: how the run stands.
  [[nodiscard]] std::filesystem::path status() const { return root / "status.json"; }

  [[nodiscard]] std::filesystem::path chain() const { return root / "chain.txt"; }

  [[nodiscard]] std::filesystem::path stop_file() const { return root / "STOP"; }

  [[nodiscard]] std::filesystem::path save_file() const { return root / "SAVE"; }

  /// One file a rank in each of these: how it ended, where its threads stood, what it skipped.
  [[nodiscard]] std::filesystem::path verdicts() const { return root / "verdicts"; }

  [[nodiscard]] std::filesystem::path stacks() const { return root / "stacks"; }

  [[nodiscard]] std::filesystem::path skipped() const { return root / "skipped"; }

  /// What jobs that wait will run (submit/submission.hpp), a folder each.
  [[nodiscard]] std::filesystem::path submit() const { return root / "submit"; }

  [[nodiscard]] std::filesystem::path checkpoints() const { return root / "checkpoints"; }

  /// A run of ours was here: a status.json of ours, or checkpoints/step-*.
  [[nodiscard]] bool holds_run() const;

  /// Nothing is there, or nothing but what a start leaves that was lost before it began.
  [[nodiscard]] bool is_blank() const;

  /// Makes the folder if it is absent or empty; accepts one that holds_run(). Throws Error(usage)
  /// for a folder that holds something else.
  void prepare() const;
};

/// "rank-00003.json" of rank 3.
std::string rank_file(int rank, const std::string& extension);

/// How a run ended, for scripts: {"state": "running" | "done" | "stopped" | "failed", "exit_code":
/// N, "step": N, "committed": N}, published whole. `committed`: the newest step with a checkpoint,
/// -1: none yet; without it the one of the status.json before.
void write_status(const RunFolder& folder, const std::string& state, int code, std::int64_t step,
                  std::optional<std::int64_t> committed = std::nullopt);

/// The newest step that this run is known to have committed, whatever is left of it; -1: none. From
/// status.json, else from the journal.
std::int64_t committed_step(const RunFolder& folder);

}  // namespace trireme
