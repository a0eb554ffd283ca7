#include "train/run_folder.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/folders.hpp"
#include "core/json.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

bool holds_step(const fs::path& checkpoints) {
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoints, code))
    if (entry.path().filename().string().starts_with("step-")) return true;
  return false;
}

bool is_status(const fs::path& file) {
  try {
    const Json status = read_json(file, {.max_bytes = std::size_t{1} << 20});
    return status.contains("state") && status.contains("exit_code");
  } catch (const Error&) {
    return false;
  }
}

/// A run of ours was here: it wrote its state or saved a step. config.toml and metrics.jsonl are
/// names that other programs use, too.
bool is_run(const RunFolder& folder) {
  return is_status(folder.status()) || holds_step(folder.checkpoints());
}

/// Nothing but what a start leaves that was killed before it wrote its state.
bool is_blank(const RunFolder& folder) {
  std::error_code code;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder.root, code)) {
    const std::string name = entry.path().filename().string();
    if (entry.path() == folder.checkpoints() && fs::is_empty(entry.path(), code)) continue;
    if (!name.starts_with("LOCK") && !name.starts_with("status.json.tmp.")) return false;
  }
  return true;
}

}  // namespace

void RunFolder::prepare() const {
  std::error_code code;
  if (root.empty()) fail(ErrorKind::usage, "--run '' names no folder");
  if (fs::exists(root, code) && !fs::is_directory(root, code))
    fail(ErrorKind::usage, "--run ", root.string(), " is a file, must be a folder");
  if (fs::exists(root, code) && !is_run(*this) && !is_blank(*this)) {
    fail(ErrorKind::usage,
         "--run ",
         root.string(),
         " holds something that is not a run of trireme; give a new or an empty folder");
  }
  make_folders(checkpoints());
}

std::string rank_file(int rank, const std::string& extension) {
  const std::string digits = cat(rank);
  return cat(
      "rank-", std::string(5 - std::min<std::size_t>(5, digits.size()), '0'), digits, extension);
}

void write_status(const RunFolder& folder, const std::string& state, int code, std::int64_t step) {
  const Json status{{"state", state}, {"exit_code", code}, {"step", step}};
  write_file_atomic(folder.status(), status.dump() + "\n");
}

}  // namespace trireme
