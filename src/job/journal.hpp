#pragma once
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/files/file.hpp"
#include "job/leg.hpp"

/// `journal.jsonl` of a run folder: what happened to the run, one whole line an event, over all of
/// its legs and jobs. Each line has `seq` (from 1, without a gap), `time` (Unix, seconds), `leg`
/// and `event`:
///
///   start     job, restart, attempt, nodes, ranks, hashes, resumed_from (null: none), job_end
///   ready     step, start_s: the first step is done
///   commit    step: its checkpoint is published
///   request   want, by, step
///   verdict   rank, host, kind, exit_code, step, message, lost: of one rank
///   end       state, exit_code, step
///   decision  what Decision has, with job, restart and attempt
///
/// **Recovery.** The valid prefix counts: what follows the first line that is not whole or out of
/// order is cut off by the next writer. It is a record: what is resumed, checkpoints alone decide.
namespace trireme {

struct JournalContent {
  std::vector<Leg> legs;          // by number
  std::int64_t lines = 0;         // of the valid prefix; the seq of its last one
  std::uint64_t valid_bytes = 0;  // the valid prefix
  std::uint64_t bytes = 0;        // the file

  /// That a checkpoint of this run was ever published for; -1: none.
  [[nodiscard]] std::int64_t committed() const;

  /// Returns the id of the run, which all of its attempts share and which moves with its folder: a
  /// hash of the time, job and host of the first line. "" if there is no line.
  [[nodiscard]] std::string run_id() const;
};

/// Of an absent file: nothing. Where a leg was fenced and had not noticed, two writers overlap: the
/// newer leg's lines count, the older's behind them are passed over. Throws Error(resource) if it cannot be read.
JournalContent read_journal(const std::filesystem::path& file);

/// Writes the journal of a run: its rank 0, or `job finish`, whoever holds the folder's lock.
/// Safe from several threads. Each event is on disk when the call returns.
class Journal {
 public:
  /// Inert until open().
  explicit Journal(std::filesystem::path file) : file_(std::move(file)) {}

  /// Once the folder is ours: cuts off what follows the valid prefix; a new leg begins. `may_write`
  /// is asked before each line: a leg that was fenced writes nothing more.
  void open(std::function<bool()> may_write);

  /// The same without a new leg: events are of the newest one, or of a first one.
  void open_newest_leg(std::function<bool()> may_write);

  /// It is open, and this leg was not fenced.
  [[nodiscard]] bool may_write() const { return open_ && may_write_(); }

  /// What it held when it was opened.
  [[nodiscard]] const std::vector<Leg>& legs() const { return legs_; }

  [[nodiscard]] std::int64_t leg() const { return leg_; }

  /// A leg that never wrote a line: events from here on are its.
  void begin_leg() { leg_ = (legs_.empty() ? 0 : legs_.back().number) + 1; }

  void start(const LegStart& start);
  void ready(const LegReady& ready);
  void commit(std::int64_t step);
  void request(const LegRequest& request);
  void verdict(const Verdict& verdict, std::int64_t leg);
  void end(const LegEnd& end);
  void decision(const Decision& decision, const JobPlace& place);

 private:
  JournalContent recover();
  void append(const char* event, std::int64_t leg, const Json& members);
  void write_whole(const std::string& line);

  std::filesystem::path file_;
  std::function<bool()> may_write_;
  std::vector<Leg> legs_;
  std::timed_mutex mutex_;
  std::atomic<bool> open_{false};
  Fd fd_;
  bool torn_ = false;  // the last line may not be whole
  std::int64_t seq_ = 0;
  std::int64_t leg_ = 0;
};

/// As the journal and `job finish` write it: {"verdict", "why", "exit_code", "root_cause": {"rank",
/// "host", "kind", "message"}, "step_before", "step_after", "failures_in_a_row", "exclude"}.
void put_decision(Json& object, const Decision& decision);

}  // namespace trireme
