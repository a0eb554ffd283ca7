#pragma once
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/disk/run_lock.hpp"
#include "checkpoint/load/load.hpp"
#include "comm/factory.hpp"
#include "config/config_set.hpp"
#include "data/loader.hpp"
#include "train/config/config.hpp"
#include "train/control/stop_requests.hpp"
#include "train/control/stop_vote.hpp"
#include "train/health/skipped_steps.hpp"
#include "train/report/metrics.hpp"
#include "train/run/run_data.hpp"
#include "train/run/run_start.hpp"
#include "train/state/fingerprint.hpp"
#include "train/state/run_folder.hpp"
#include "train/state/run_state.hpp"
#include "train/state/saver.hpp"
#include "train/step/step.hpp"
#include "train/step/step_chain.hpp"
#include "train/task.hpp"

namespace trireme {

/// What a program hands to a run: where it stands, all ranks, and backends for devices that only
/// some programs link.
struct RunRanks {
  const LaunchInfo& launch;
  Communicator& world;                           // CPU: control, agreement, metrics, checkpoints
  std::span<const CommBackend> device_backends;  // "nccl" where it was built
  CommOptions options;
  std::string job_id;               // of the scheduler, "" outside one
  std::string program = "trireme";  // as the user called it
};

/// The numbers that the loop itself measures; seconds are of this rank.
struct RunMeasures {
  Measures all;                                               // components declare theirs here, too
  Measures::Id data_wait_s = all.declare({"data_wait_s"});    // for the loader
  Measures::Id save_s = all.declare({"save_s"});              // checkpoints, and their copies
  Measures::Id validation_s = all.declare({"validation_s"});  // since the step before
  /// Waiting for other ranks, wherever that was; who waited least kept the others waiting.
  Measures::Id peer_wait_s = all.declare({"peer_wait_s", Combine::mean, false, "slowest_rank"});
  Measures::Id mem_peak_bytes = all.declare({"mem_peak_bytes", Combine::max, /*whole=*/true});
};

/// One training run on all ranks, from opened data to the last checkpoint: prepare(), then
/// execute(); both are collective.
class TrainingRun {
 public:
  TrainingRun(const Task& task, RunConfig& config, ConfigSet& keys,
              const std::filesystem::path& folder, const RunRanks& ranks, RunStart start);
  ~TrainingRun();
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;

  /// Opens the data, resolves the configuration, claims the run folder, builds the model and
  /// resumes; whatever is wrong on any rank is thrown on all (comm/agree.hpp) before a step is done.
  void prepare();

  /// Trains to the last step: kExitDone; or to the step at which a rank was asked to stop
  /// (stop_requests.hpp): kExitStopped, after a committed checkpoint; an update under way is given
  /// up between its micro-batches. Throws StoppedEarly before the first step, and what ends the
  /// run, with the last committed checkpoint intact.
  int execute();

  /// After either threw: status.json (rank 0) and this rank's verdict say so,
  /// if the folder was claimed.
  void record_failure(const std::string& kind, int code, const std::string& message);
  /// After either threw StoppedEarly, which is on all ranks: kExitStopped.
  int end_before_first_step();
  /// After execute() threw Error(numeric), which all ranks do at the same step: the lines of the
  /// steps before are written, and one rank speaks for all. Throws AgreedError or PeerFailed.
  [[noreturn]] void end_diverged(const Error& error);

 private:
  struct Model;

  /// Collective: what the configuration leaves open (open_values.hpp).
  void choose_values();
  void open_data();
  /// Before anything large is made: throws if this machine cannot hold the run (memory_need.hpp).
  void check_room() const;
  void resolve_config();
  void claim_folder();
  void build();
  void resume();
  /// That the resolved configuration goes with the start. Throws Error(usage); nothing is touched.
  void check_start() const;
  /// Error(usage) if train.steps is less than `done`.
  void check_steps(std::int64_t done) const;
  /// False: from its weights alone.
  [[nodiscard]] bool load(const Checkpoint& checkpoint);
  void open_sinks();
  /// Of a new run from a state: "" if it goes on in the data where the checkpoint stopped, else why
  /// it begins at sample 0.
  [[nodiscard]] std::string other_data(const std::map<std::string, std::string>& values,
                                       const std::string& where) const;
  void log_start(const Checkpoint& checkpoint, bool weights, const std::string& fresh_data) const;
  /// checkpoint.resume is a path, which names where a run without checkpoints starts. Throws
  /// Error(usage) if it is an older one of this run, which would have to go back.
  void check_named(std::int64_t newest) const;
  /// Moves unusable checkpoints of later steps out of the way (rank 0).
  void set_aside_after(std::int64_t step) const;
  void announce() const;
  /// Ranks, micro-batch and mesh, as text: what the order of sums depends on.
  [[nodiscard]] std::string layout() const;

  /// One optimizer step with everything around it but checkpoints.
  /// False: it was given up between micro-batches for a stop; then nothing has changed.
  [[nodiscard]] bool do_step();
  /// An update without a target would divide by nothing: Error(data), on all ranks alike.
  void check_targets(const Batch& batch);
  void report(const UpdateResult& result, double lr, std::int64_t step_tokens);
  /// Collective: the line of the last reported step, and the end of the progress line.
  void show_last_metrics();
  /// Collective: the last step's trace enters the chain, which a checkpoint of it holds.
  void settle_chain(StopVote& vote);
  /// False: it was given up for a stop.
  [[nodiscard]] bool validate();
  void save();
  /// Of a save in flight.
  void commit();
  /// What follows from a line of metrics, the same on all ranks.
  void heed(const MetricsLine& line);
  /// The last words: what was done and where it is.
  void close(bool done);
  void enter(const char* phase) const;
  [[nodiscard]] bool checkpoint_due() const;
  /// Main weights of this rank at the steps that the chain takes them in; else none.
  std::span<const std::byte> weights_to_hash(std::int64_t step);
  /// What is neither tensor nor progress: chain, skipped steps, windows of z-scores, fingerprint.
  void put_history(std::map<std::string, std::string>& values) const;
  void load_history(const std::map<std::string, std::string>& values);

  const Task& task_;
  RunConfig& config_;
  ConfigSet& keys_;
  RunFolder folder_;
  RunRanks ranks_;
  RunStart start_;
  std::optional<RunLock> lock_;  // rank 0
  bool claimed_ = false;         // the folder is this run's, on all ranks
  Communicator& world_;

  std::string batch_note_;  // how train.global_batch was chosen, if it was
  std::unique_ptr<RunData> data_;
  std::map<std::string, std::string> files_;  // carried along in checkpoints
  std::unique_ptr<Model> model_;
  std::optional<DataLoader> loader_;
  std::optional<CheckpointSaver> saver_;
  RunMeasures measures_;
  std::optional<Metrics> metrics_;
  std::optional<StepChain> chain_;
  std::optional<SkippedSteps> skipped_;
  std::optional<StopRequests> requests_;
  std::optional<StopBetween> stop_between_;  // pieces of a step or a validation
  Fingerprint fingerprint_;
  Progress progress_;
  at::Tensor weights_;       // on the host, while they are hashed
  Progress begun_;           // where this start of the run began
  Timer run_time_;           // since then
  Timer since_save_;         // the last one's start
  std::uint64_t trace_ = 0;  // of the last step, not in the chain yet
  std::int64_t steps_since_report_ = 0;
  double waited_reported_s_ = 0;                       // of all that this rank waited for others
  std::pair<std::int64_t, double> valid_loss_{-1, 0};  // newest validation: step, loss
  std::int64_t saved_step_ = -1;  // newest in this run's folder, being written or committed
};

/// Trains: a command after its arguments and its start (read_start) are read. Returns the exit code
/// and leaves status.json.
int run_task(const Task& task, RunConfig& config, ConfigSet& keys,
             const std::filesystem::path& folder, const RunRanks& ranks, RunStart start);

}  // namespace trireme
