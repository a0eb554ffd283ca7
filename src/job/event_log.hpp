#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/files/file.hpp"
#include "job/attempt.hpp"

/// Reads and writes `journal.jsonl`, the event log of a run directory. It has one line per event,
/// for all attempts and jobs of the run. Each line has `seq` (from 1, without gaps), `time` (Unix,
/// seconds), `leg` (the number of the attempt) and `event`:
///
///   start     job, restart, attempt, nodes, ranks, hashes, resumed_from (null: none), job_end,
///             job_start, age_s (age of the processes); the last three if they are known
///   ready     step, start_s: the first step is done
///   commit    step: the checkpoint of this step is published
///   request   want, by, step
///   `verdict` rank, host, kind, exit_code, step, message, at (Unix time of the failure), lost: the
///             failure report of one rank
///   end       state, exit_code, step, reason (only after an early stop)
///   decision  the members of Decision, with job, restart and attempt
///
/// **Recovery.** After a crash, the file may end with an invalid line. Only the valid prefix
/// counts: the next writer truncates the file before the first line that is incomplete or out of
/// order. The event log only records events; checkpoints alone determine from which step a run
/// resumes.
namespace trireme::job {

struct EventLogContent {
  std::vector<Attempt> attempts;  // sorted by number
  std::int64_t lines = 0;  // number of lines of the valid prefix; equals the seq of its last line
  std::uint64_t valid_bytes = 0;  // size of the valid prefix
  std::uint64_t bytes = 0;        // size of the file

  /// Returns the newest step for which a checkpoint of this run was published; -1: none.
  [[nodiscard]] std::int64_t committed() const;

  /// Returns the id of the run: a hash of the time, job and host of the first line. All attempts of
  /// the run have the same id, and it does not change if the directory is moved. Returns "" if
  /// there is no line.
  [[nodiscard]] std::string run_id() const;
};

/// Reads the event log; returns an empty one if the file does not exist. If an older attempt did
/// not notice that it had lost the lock, the lines of two writers can be mixed. Then skips all
/// lines of the older attempt that follow a line of the newer one. Throws Error(resource) if the
/// file cannot be read.
EventLogContent read_event_log(const std::filesystem::path& file);

/// Writes the event log of a run. Only the process that holds the lock of the run directory may
/// write: rank 0 of the run, or `job finish`. Thread-safe. When a call returns, the event is on
/// disk.
class EventLog {
 public:
  /// Writes nothing until open().
  explicit EventLog(std::filesystem::path file) : file_(std::move(file)) {}

  /// Truncates the file to its valid prefix and begins a new attempt. Call it with the lock held.
  /// `may_write` is called before each line. If it returns false (the attempt has lost the lock),
  /// nothing is written.
  void open(std::function<bool()> may_write);

  /// Like open(), but does not begin a new attempt: events belong to the newest attempt in the log.
  /// If the log is empty, they belong to attempt 1.
  void open_newest_attempt(std::function<bool()> may_write);

  /// Returns true if the log is open and this attempt still holds the lock.
  [[nodiscard]] bool may_write() const { return open_ && may_write_(); }

  /// Returns the attempts that the log contained when it was opened.
  [[nodiscard]] const std::vector<Attempt>& attempts() const { return attempts_; }

  [[nodiscard]] std::int64_t attempt() const { return attempt_; }

  /// Begins a new attempt: the next events belong to a number that no line in the log has yet.
  void begin_attempt() { attempt_ = (attempts_.empty() ? 0 : attempts_.back().number) + 1; }

  void start(const AttemptStart& start);
  void ready(const AttemptReady& ready);
  void commit(std::int64_t step);
  void request(const AttemptRequest& request);
  void failure_report(const FailureReport& failure_report, std::int64_t attempt);
  void end(const AttemptEnd& end);
  void decision(const Decision& decision, const AttemptId& attempt_id);

 private:
  EventLogContent recover();
  void append(const char* event, std::int64_t attempt, const Json& members);
  void write_whole(const std::string& line);

  std::filesystem::path file_;
  std::function<bool()> may_write_;
  std::vector<Attempt> attempts_;
  std::timed_mutex mutex_;
  std::atomic<bool> open_{false};
  Fd fd_;
  bool torn_ = false;  // the last line may be incomplete
  std::int64_t seq_ = 0;
  std::int64_t attempt_ = 0;
};

/// Adds the members of a decision to a JSON object, for the event log and `job finish`: {"verdict",
/// "why", "exit_code", "root_cause": {"rank", "host", "kind", "message"}, "step_before",
/// "step_after", "failures_in_a_row", "exclude"}.
void put_decision(Json& object, const Decision& decision);

}  // namespace trireme::job
