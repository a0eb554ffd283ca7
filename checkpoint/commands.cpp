#include "checkpoint/commands.hpp"

#include <array>
#include <cstdio>
#include <optional>

#include "checkpoint/agree.hpp"
#include "checkpoint/folder.hpp"
#include "checkpoint/hf_export.hpp"
#include "checkpoint/verify.hpp"
#include "core/error.hpp"
#include "core/log.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

/// Of one checkpoint, or of each in a run, newest first.
std::vector<fs::path> step_folders(const fs::path& place) {
  const CheckpointPlace found = find_place(place);
  if (found.is_step) return {found.path};
  std::vector<fs::path> folders;
  for (const std::int64_t step : list_steps(found.path))
    folders.push_back(found.path / step_folder_name(step));
  return folders;
}

std::string size_text(double bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
  return text;
}

double total_bytes(const CheckpointManifest& manifest) {
  double total = 0;
  for (const auto* list : {&manifest.shards, &manifest.files}) {
    for (const SavedFile& file : *list) total += static_cast<double>(file.bytes);
  }
  return total;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += cat(text.empty() ? "" : "x", size);
  return text.empty() ? "scalar" : text;
}

}  // namespace

Checkpoint open_newest_good(const fs::path& place) {
  const CheckpointPlace found = find_place(place);
  if (found.is_step) return Checkpoint::open(found.path);
  auto checkpoint =
      find_newest_good(found.path, [](std::string_view warning) { log::warn(warning); });
  if (!checkpoint)
    fail(ErrorKind::data,
         place.string(),
         ": none of its checkpoints is usable (see the warnings above)");
  return *checkpoint;
}

std::string checkpoint_list(const fs::path& place) {
  std::string text;
  for (const fs::path& folder : step_folders(place)) {
    std::optional<Checkpoint> checkpoint;
    const auto error = capture([&] { checkpoint = Checkpoint::open(folder); });
    text += folder.filename().string() + "  ";
    if (error) {
      text += cat("damaged: ", error->what(), "\n");
      continue;
    }
    const CheckpointManifest& manifest = checkpoint->manifest();
    text += cat(size_text(total_bytes(manifest)),
                "  ",
                manifest.tensors.size(),
                " tensors  ",
                manifest.shards.size(),
                manifest.shards.size() == 1 ? " shard" : " shards",
                "  run ",
                manifest.run_id,
                "\n");
  }
  return text;
}

std::string checkpoint_verify(const fs::path& place) {
  std::string text;
  std::string damage;
  for (const fs::path& folder : step_folders(place)) {
    const auto error = capture([&] {
      const Checkpoint checkpoint = verify_checkpoint(folder);
      text += cat(folder.filename().string(),
                  "  good, ",
                  size_text(total_bytes(checkpoint.manifest())),
                  "\n");
    });
    if (error && error->kind() != ErrorKind::data) throw Error(error->kind(), error->what());
    if (error) damage += cat(damage.empty() ? "" : "\n", error->what());
  }
  if (!damage.empty()) throw Error(ErrorKind::data, damage);
  return text;
}

std::string checkpoint_hash(const fs::path& place) {
  return hash_tensors(open_newest_good(place)) + "\n";
}

std::string checkpoint_inspect(const fs::path& place) {
  const Checkpoint checkpoint = open_newest_good(place);
  const CheckpointManifest& manifest = checkpoint.manifest();
  std::string text = cat(checkpoint.path().string(),
                         "\n  format ",
                         kCheckpointVersion,
                         ", run ",
                         manifest.run_id,
                         ", step ",
                         manifest.step,
                         ", ",
                         size_text(total_bytes(manifest)),
                         "\nvalues\n");
  for (const auto& [key, value] : manifest.values) text += cat("  ", key, " = ", value, "\n");
  text += "files\n";
  for (const auto* list : {&manifest.files, &manifest.shards}) {
    for (const SavedFile& file : *list)
      text += cat("  ", file.name, "  ", file.bytes, " bytes  ", file.hash, "\n");
  }
  text += "tensors\n";
  for (const auto& [name, tensor] : manifest.tensors) {
    text += cat("  ",
                name,
                "  ",
                dtype_name(tensor.dtype),
                " ",
                shape_text(tensor.shape),
                "  ",
                tensor.slices.size(),
                tensor.slices.size() == 1 ? " slice\n" : " slices\n");
  }
  return text;
}

std::string export_command(const ExportCommand& options) {
  if (options.checkpoint.empty() || options.output.empty())
    fail(ErrorKind::usage, "export needs --checkpoint DIR and --output DIR");
  const auto dtype = dtype_from_name(options.dtype);
  if (!dtype) fail(ErrorKind::usage, "--dtype ", options.dtype, ", must be one of f32, bf16, f16");
  const Checkpoint checkpoint = open_newest_good(options.checkpoint);
  export_hf(checkpoint, options.output, {.dtype = *dtype});
  return cat(checkpoint.path().string(), " -> ", options.output, "\n");
}

std::string import_command(const ImportCommand& options, Communicator& world) {
  if (options.hf.empty() || options.output.empty())
    fail(ErrorKind::usage, "import needs --hf DIR and --output DIR");
  std::error_code code;
  if (fs::exists(options.output, code) && !fs::is_empty(options.output, code)) {
    fail(ErrorKind::usage,
         "--output ",
         options.output,
         " is not empty: weights are imported into a new run folder only");
  }
  return cat(options.hf,
             " -> ",
             import_hf(options.hf, fs::path(options.output) / "checkpoints", world).string(),
             "\n");
}

}  // namespace trireme
