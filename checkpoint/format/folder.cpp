#include "checkpoint/format/folder.hpp"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>

#include "checkpoint/format/manifest.hpp"
#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/files/refusal.hpp"
#include "core/process/failpoints.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDataSetFormat = "trireme-tokens";

/// Returns true if the directory is a data set of trireme-data. It also has a manifest.json.
bool is_data_set(const fs::path& place) {
  try {
    const std::string where = (place / kManifestName).string();
    const Json manifest = parse_json(read_file(where), where);
    return json_get<std::string>(manifest, "format", where) == kDataSetFormat;
  } catch (const Error&) {
    return false;  // missing or damaged: another message tells it
  }
}

}  // namespace

std::vector<fs::path> list_directory(const fs::path& directory) {
  std::vector<fs::path> entries;
  std::error_code code;
  for (fs::directory_iterator it(directory, code), end; !code && it != end; it.increment(code))
    entries.push_back(it->path());
  const bool absent = code == std::errc::no_such_file_or_directory ||
                      code == std::errc::not_a_directory ||
                      code == std::errc::filename_too_long;  // no file can have such a name
  if (code && !absent) fail_to_read("list", directory, code.value());
  std::sort(entries.begin(), entries.end());
  return entries;
}

std::vector<std::int64_t> list_steps(const fs::path& directory) {
  std::vector<std::int64_t> steps;
  for (const fs::path& entry : list_directory(directory)) {
    const std::int64_t step = step_of_directory_name(entry.filename().string());
    if (step >= 0) steps.push_back(step);
  }
  std::sort(steps.begin(), steps.end(), std::greater<>());
  return steps;
}

void remove_leftovers(const fs::path& directory) {
  for (const fs::path& entry : list_directory(directory)) {
    const std::string name = entry.filename().string();
    if (name.starts_with(".tmp-step-") || name.starts_with(".trash-step-")) remove_tree(entry);
  }
}

void discard_step(const fs::path& directory, std::int64_t step) {
  const std::string name = step_directory_name(step);
  const fs::path trash = directory / (".trash-" + name);
  remove_tree(trash);
  failpoint("checkpoint.prune");
  publish(directory / name, trash);
  failpoint("checkpoint.pruned");
  remove_tree(trash);
}

fs::path set_aside_step(const fs::path& directory, std::int64_t step) {
  const std::string name = step_directory_name(step);
  fs::path target = directory / ("damaged-" + name);
  for (int copy = 2; fs::exists(fs::symlink_status(target)); ++copy)
    target = directory / formatted("damaged-{}.{}", name, copy);
  publish(directory / name, target);
  return target;
}

std::string advice_for(const fs::path& place) {
  std::error_code code;
  const auto has = [&](const char* name) { return fs::exists(place / name, code); };
  if (is_data_set(place)) {
    return formatted("it is a data set. `trireme-data inspect {}` shows its documents",
                     place.string());
  }
  if (has("adapter_config.json")) {
    return formatted(
        "it is a directory of adapters (Hugging Face peft). `trireme import --peft {} --base MODEL "
        "--output RUN` makes a run from it",
        place.string());
  }
  if (has("config.json")) {
    return formatted(
        "it is a Hugging Face directory. `trireme import --hf {} --output RUN` makes a checkpoint from "
        "it",
        place.string());
  }
  if (place.extension() == ".pth" || place.extension() == ".safetensors") {
    return formatted(
        "it is a weight file. `trireme import --minimind {} --model.preset NAME --output RUN` "
        "makes a checkpoint from weights of MiniMind",
        place.string());
  }
  return "";
}

CheckpointLocation locate_checkpoints(const fs::path& path) {
  std::error_code code;
  const fs::path place = fs::canonical(path, code);
  if (code) fail_to_read("open", path, code.value());
  const bool named = step_of_directory_name(place.filename().string()) >= 0;
  const bool has_manifest = fs::exists(place / kManifestName, code) && !is_data_set(place);
  if ((named && fs::is_directory(place, code)) || has_manifest) return {place, true};
  if (!list_steps(place / "checkpoints").empty()) return {place / "checkpoints", false};
  if (!list_steps(place).empty()) return {place, false};
  const std::string advice = advice_for(place);
  fail(ErrorKind::data, "{} holds no checkpoint: {}", path.string(),
       advice.empty() ? "expected a step-NNNNNNNNN directory, or a run directory that contains one"
                      : advice);
}

fs::path locked_directory(const fs::path& checkpoints) {
  std::error_code code;
  const fs::path place = fs::weakly_canonical(checkpoints, code);
  if (code) fail_to_write("open", checkpoints, code.value());
  return place.filename() == "checkpoints" ? place.parent_path() : place;
}

}  // namespace trireme::checkpoint
