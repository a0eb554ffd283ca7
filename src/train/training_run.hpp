#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/load.hpp"
#include "checkpoint/run_lock.hpp"
#include "comm/factory.hpp"
#include "config/config_set.hpp"
#include "data/loader.hpp"
#include "data/samples.hpp"
#include "data/stream.hpp"
#include "data/token_set.hpp"
#include "train/config.hpp"
#include "train/metrics.hpp"
#include "train/progress_line.hpp"
#include "train/run_folder.hpp"
#include "train/run_state.hpp"
#include "train/saver.hpp"
#include "train/step.hpp"

namespace trireme {

/// What a program hands to a run: where it stands, all ranks, and backends for devices that only
/// some programs link.
struct RunRanks {
  const LaunchInfo& launch;
  Communicator& world;                           // CPU: control, agreement, metrics, checkpoints
  std::span<const CommBackend> device_backends;  // "nccl" where it was built
  CommOptions options;
  std::string job_id;  // of the scheduler, "" outside one
};

/// One training run on all ranks, from opened data to the last checkpoint. Construct, then
/// execute(); both are collective.
///
/// The constructor opens the data, resolves the configuration, claims the run folder, builds the
/// model and resumes; whatever is wrong on any rank is thrown on all (agreement.hpp) before a step
/// is done.
class TrainingRun {
 public:
  TrainingRun(RunConfig& config,
              ConfigSet& keys,
              const std::filesystem::path& folder,
              const RunRanks& ranks);
  ~TrainingRun();
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  /// Trains to the last step: kExitDone; or to the step at which a signal reached any rank:
  /// kExitStopped, after a committed checkpoint. Throws what ends the run, with the last committed
  /// checkpoint intact.
  int execute();

  /// After execute() threw: status.json says so (rank 0).
  void record_failure(int code);
  /// After execute() threw Error(numeric), which all ranks do at the same step: the lines of the
  /// steps before are written, and one rank speaks for all. Throws AgreedError or PeerFailed.
  [[noreturn]] void end_diverged(const Error& error);

 private:
  struct Model;

  void open_data();
  void open_validation();
  void resolve_config();
  void claim_folder();
  void build();
  void resume();
  void load(const Checkpoint& checkpoint);
  /// Newest committed step in this run's folder, as rank 0 sees it; -1: none (collective).
  [[nodiscard]] std::int64_t newest_own_step() const;
  /// checkpoint.resume is a path, which names where a run without checkpoints starts. Throws
  /// Error(usage) if it is an older one of this run, which would have to go back.
  void check_start(std::int64_t newest) const;
  /// Moves unusable checkpoints of later steps out of the way (rank 0).
  void set_aside_after(std::int64_t step) const;
  void announce() const;
  [[nodiscard]] std::int64_t steps_of_epochs() const;

  /// One optimizer step with everything around it but checkpoints.
  void do_step();
  void report(const UpdateResult& result,
              double step_time_s,
              double data_wait_s,
              double lr,
              std::int64_t step_tokens);
  void validate();
  void save();
  [[nodiscard]] bool checkpoint_due() const;

  RunConfig& config_;
  ConfigSet& keys_;
  RunFolder folder_;
  RunRanks ranks_;
  std::optional<RunLock> lock_;  // rank 0
  Communicator& world_;

  std::optional<SampleStream> stream_;
  std::optional<TokenSet> valid_set_;
  std::vector<SampleSet> valid_samples_;      // of valid_set_, or a part of each training set
  std::map<std::string, std::string> files_;  // carried along in checkpoints
  std::unique_ptr<Model> model_;
  std::optional<DataLoader> loader_;
  std::optional<CheckpointSaver> saver_;
  std::optional<Metrics> metrics_;
  std::optional<ProgressLine> progress_line_;
  Progress progress_;
  StepMeasures since_report_;
  std::int64_t steps_since_report_ = 0;
  std::int64_t saved_step_ = -1;  // newest in this run's folder, being written or committed
};

/// The `trireme pretrain` command after its arguments are read; returns the exit code and leaves
/// status.json.
int pretrain(RunConfig& config,
             ConfigSet& keys,
             const std::filesystem::path& folder,
             const RunRanks& ranks);

}  // namespace trireme
