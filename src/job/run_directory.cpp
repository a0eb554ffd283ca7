#include "job/run_directory.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "job/event_log.hpp"

namespace trireme::job {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxStatusBytes = std::size_t{1} << 20;

bool holds_step(const fs::path& checkpoints) {
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints, code))
    if (entry.path().filename().string().starts_with("step-")) return true;
  return false;
}

/// Returns true for a directory that holds only checkpoints, complete or not. A run that ended
/// before its first checkpoint leaves such copies of its frozen weights.
bool holds_only_steps(const fs::path& directory) {
  std::error_code code;
  if (!fs::is_directory(directory, code)) return false;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, code)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("step-") && !name.starts_with(".tmp-step-") && name != "latest")
      return false;
  }
  return true;
}

bool is_status(const fs::path& file) {
  try {
    const Json status = read_json(file, {.max_bytes = kMaxStatusBytes});
    return status.contains("state") && status.contains("exit_code");
  } catch (const Error&) {
    return false;
  }
}

constexpr const char* kRecord = "job.json";
constexpr std::size_t kMaxRecordBytes = std::size_t{1} << 16;

}  // namespace

// config.toml and metrics.jsonl do not show that the directory is a run, because other programs
// also use these names.
bool RunDirectory::holds_run() const {
  return is_status(status()) || holds_step(checkpoints());
}

bool RunDirectory::holds_checkpoint() const {
  return holds_step(checkpoints());
}

bool RunDirectory::is_blank() const {
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, code)) {
    const std::string name = entry.path().filename().string();
    if (entry.path() == checkpoints() && fs::is_empty(entry.path(), code)) continue;
    const bool ours = name.starts_with("LOCK") || name.starts_with("status.json.tmp.") ||
                      name.starts_with(kProbePrefix) || entry.path() == event_log() ||
                      entry.path() == submit() || entry.path() == failure_reports() ||
                      (entry.path() != checkpoints() && holds_only_steps(entry.path()));
    if (!ours) return false;
  }
  return true;
}

void RunDirectory::prepare() const {
  std::error_code code;
  if (root.empty()) fail(ErrorKind::usage, "--run is empty. Give the path of a directory");
  if (fs::exists(root, code) && !fs::is_directory(root, code))
    fail(ErrorKind::usage, "--run {} is a file. Give the path of a directory", root.string());
  if (fs::exists(root, code) && !holds_run() && !is_blank()) refuse_foreign();
  make_directories(checkpoints());
}

void RunDirectory::refuse_foreign() const {
  fail(ErrorKind::usage,
       "--run {} is not empty and is not a Trireme run. Choose a new or an empty directory",
       root.string());
}

std::string rank_file(int rank, const std::string& extension) {
  const std::string digits = cat(rank);
  return formatted("rank-{}{}{}", std::string(5 - std::min<std::size_t>(5, digits.size()), '0'),
                   digits, extension);
}

void write_status(const RunDirectory& folder, const std::string& state, int code, std::int64_t step,
                  std::optional<std::int64_t> committed, const std::string& reason) {
  Json status{{"state", state},
              {"exit_code", code},
              {"step", step},
              {"committed", committed ? *committed : committed_step(folder)}};
  if (!reason.empty()) status["reason"] = reason;
  write_file_atomic(folder.status(), status.dump() + "\n");
}

std::int64_t committed_step(const RunDirectory& folder) {
  try {
    const Json status = read_json(folder.status(), {.max_bytes = kMaxStatusBytes});
    return json_get<std::int64_t>(status, "committed", folder.status().string());
  } catch (const Error&) {  // missing, or written by an older version
    return read_event_log(folder.event_log()).committed();
  }
}

void write_submission(const std::filesystem::path& place, const SubmissionRecord& record) {
  const Json json{{"job", record.job}, {"chain", record.chain}, {"time", record.time}};
  write_file_atomic(place / kRecord, json.dump() + "\n");
}

std::vector<SubmissionRecord> read_submissions(const RunDirectory& folder) {
  std::vector<SubmissionRecord> records;
  std::error_code code;
  for (std::filesystem::directory_iterator it(folder.submit(), code), end; !code && it != end;
       it.increment(code)) {
    const std::filesystem::path file = it->path() / kRecord;
    try {
      const Json json = read_json(file, {.max_bytes = kMaxRecordBytes});
      const std::string where = file.string();
      records.push_back({json_get<std::string>(json, "job", where),
                         json_get<std::int64_t>(json, "chain", where),
                         json_get<double>(json, "time", where)});
    } catch (const Error&) {
      // no readable record: an older version wrote none, or the submission was refused
    }
  }
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.time < b.time; });
  return records;
}

}  // namespace trireme::job
