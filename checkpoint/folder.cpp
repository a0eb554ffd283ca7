#include "checkpoint/folder.hpp"

#include <algorithm>
#include <functional>
#include <string>

#include "checkpoint/manifest.hpp"
#include "core/error.hpp"
#include "core/failpoints.hpp"
#include "core/file.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code))
    entries.push_back(it->path());
  const bool absent =
      code == std::errc::no_such_file_or_directory || code == std::errc::not_a_directory;
  if (code && !absent) {
    fail(ErrorKind::resource, "cannot list ", folder.string(), ": ", code.message());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

void remove_tree(const fs::path& path) {
  std::error_code code;
  fs::remove_all(path, code);
  if (code) fail(ErrorKind::resource, "cannot delete ", path.string(), ": ", code.message());
}

}  // namespace

std::vector<std::int64_t> list_steps(const fs::path& folder) {
  std::vector<std::int64_t> steps;
  for (const fs::path& entry : entries_of(folder)) {
    const std::int64_t step = step_of_folder_name(entry.filename().string());
    if (step >= 0 && fs::symlink_status(entry).type() == fs::file_type::directory)
      steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

void remove_leftovers(const fs::path& folder) {
  for (const fs::path& entry : entries_of(folder)) {
    const std::string name = entry.filename().string();
    if (name.starts_with(".tmp-step-") || name.starts_with(".trash-step-")) remove_tree(entry);
  }
}

void discard_step(const fs::path& folder, std::int64_t step) {
  const std::string name = step_folder_name(step);
  const fs::path trash = folder / (".trash-" + name);
  remove_tree(trash);
  failpoint("checkpoint.prune");
  publish(folder / name, trash);
  failpoint("checkpoint.pruned");
  remove_tree(trash);
}

fs::path set_aside_step(const fs::path& folder, std::int64_t step) {
  const std::string name = step_folder_name(step);
  fs::path target = folder / ("damaged-" + name);
  for (int copy = 2; fs::exists(fs::symlink_status(target)); ++copy)
    target = folder / cat("damaged-", name, ".", copy);
  publish(folder / name, target);
  return target;
}

CheckpointPlace find_place(const fs::path& path) {
  if (fs::exists(path / kManifestName)) return {path, true};
  if (step_of_folder_name(path.filename().string()) >= 0 && fs::is_directory(path))
    return {path, true};
  if (!list_steps(path / "checkpoints").empty()) return {path / "checkpoints", false};
  if (!list_steps(path).empty()) return {path, false};
  fail(ErrorKind::data,
       path.string(),
       " holds no checkpoint: expected a step-NNNNNNNNN folder, or a run folder with some");
}

}  // namespace trireme
