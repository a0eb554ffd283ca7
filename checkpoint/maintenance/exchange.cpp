#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/disk/run_lock.hpp"
#include "checkpoint/exchange/lora.hpp"
#include "checkpoint/exchange/whole_directory.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/model_head.hpp"
#include "checkpoint/gguf/gguf_export.hpp"
#include "checkpoint/hf/hf_export.hpp"
#include "checkpoint/hf/hf_model.hpp"
#include "checkpoint/maintenance/commands.hpp"
#include "checkpoint/maintenance/model_path.hpp"
#include "checkpoint/maintenance/newest.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "checkpoint/minimind/minimind_import.hpp"
#include "checkpoint/peft/peft.hpp"
#include "checkpoint/save/save.hpp"
#include "comm/agree.hpp"
#include "comm/self/self_communicator.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/join.hpp"
#include "core/log.hpp"

/// Implements `trireme export` and `import` as functions.
namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

constexpr const char* kBase = "base";  // directory of the base weights in a run with adapters

/// Returns true if the directory is empty except for the leftovers of a killed import.
bool is_vacant(const fs::path& run_folder) {
  bool vacant = true;
  const auto look = [&](const fs::path& directory, const std::string& leftover,
                        const std::vector<std::string>& allowed) {
    if (!fs::exists(directory)) return;
    for (const fs::path& entry : list_directory(directory)) {
      const std::string name = entry.filename().string();
      vacant = vacant &&
               (name.starts_with(leftover) || std::ranges::find(allowed, name) != allowed.end());
    }
  };
  (void)comm::capture([&] {  // a directory that cannot be read is refused later
    look(run_folder, "LOCK", {"checkpoints", kBase});
    look(run_folder / kBase, ".tmp-step-", {step_directory_name(0), "latest"});
    look(run_folder / "checkpoints", ".tmp-step-", {});
  });
  return vacant;
}

/// Throws Error(data) with advice if the directory of --hf is something else that Trireme reads.
void check_is_hf(const fs::path& place) {
  std::error_code code;
  if (fs::exists(place / "config.json", code)) return;
  const bool is_ours = !comm::capture([&] { (void)locate_checkpoints(place); });
  const std::string advice =
      is_ours ? "it holds checkpoints of Trireme, which need no import: give it to --init or "
                "--checkpoint"
              : advice_for(place);
  if (!advice.empty())
    fail(ErrorKind::data, "--hf {} is not a Hugging Face directory: {}", place.string(), advice);
}

/// Writes the base weights to OUTPUT/base and the adapters as step 0, so that OUTPUT looks like a
/// run that trains adapters.
fs::path import_adapters(const ImportCommand& options) {
  comm::SelfCommunicator alone;
  const fs::path run = options.output;
  if (lies_in(options.base, run / kBase))
    fail(ErrorKind::usage,
         "--base {} lies in the directory of --output {}, into which the base is copied: choose "
         "another --output",
         options.base, options.output);
  // Check all input before creating the run directory.
  const ModelDescription base = read_model_description(options.base);
  PeftAdapters adapters = read_peft(options.peft, base.values, base.files, base.place.string());
  const RunLock lock(run, RunLockOptions{});
  remove_tree(run / kBase);  // A killed import may have left it.
  const Checkpoint kept = publish_model(options.base, run / kBase, alone);
  adapters.state.values["base.weights_sha256"] = hash_tensors(kept, alone, "param/");
  return save_checkpoint(run / "checkpoints", 0, adapters.state, alone,
                         {.run_id = adapters.run_id});
}

/// A directory that only this process uses. The destructor deletes it.
class TemporaryDirectory {
 public:
  /// Throws Error(usage) if `output` exists or another process exports to it.
  TemporaryDirectory(const fs::path& path, const fs::path& output)
      : path_(path), lock_(claim_temporary(path, output)) {}

  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  TemporaryDirectory(TemporaryDirectory&&) = delete;
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;

  ~TemporaryDirectory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }

 private:
  fs::path path_;
  Fd lock_;
};

/// A temporary checkpoint beside the output, for a model that is not a checkpoint.
class TemporaryModel {
 public:
  /// Collective. Throws Error(usage) if `output` exists or another process exports to it.
  TemporaryModel(const fs::path& place, const fs::path& output, comm::Communicator& world,
                 bool allow_older) {
    const fs::path target = without_slash(output);
    const fs::path path = fs::path(target).concat(".model.tmp");
    comm::on_first_rank(world, [&] { directory_.emplace(path, target); });
    model_ = open_whole_model(place, path / "model", world, allow_older);
  }

  [[nodiscard]] const Checkpoint& checkpoint() const { return model_->checkpoint; }

 private:
  std::optional<TemporaryDirectory> directory_;  // rank 0 holds it for all ranks
  std::optional<WholeModel> model_;
};

/// Returns `base_model_name_or_path` for exported adapters. Without --base-name, this is the
/// Hugging Face directory that --base or the run of the adapters names. If there is none, it is the
/// base checkpoint, which only Trireme can read.
std::string base_name_of(const Checkpoint& adapters, const ExportCommand& options) {
  if (!options.base_name.empty()) return options.base_name;
  const auto& values = adapters.manifest().values;
  const auto start = values.find("config.checkpoint.resume");
  for (const std::string& place :
       {options.base, start == values.end() ? std::string() : start->second}) {
    if (!place.empty() && is_hf_directory(place)) return fs::absolute(place).string();
  }
  const fs::path base =
      options.base.empty() ? base_checkpoint_path(adapters) : fs::path(options.base);
  const std::string name = fs::absolute(base).lexically_normal().string();
  log::warn(formatted(
      "base_model_name_or_path = {}, which only Trireme reads. To let AutoPeftModel of Hugging Face "
      "find the base, run `trireme export --checkpoint {} --output BASE` and give --base-name BASE",
      name, name));
  return name;
}

/// The input of an exporter.
struct ExportSource {
  const Checkpoint& checkpoint;
  const Checkpoint* base;  // whole model, if the checkpoint holds adapters to merge; otherwise null
  const ExportCommand& options;

  [[nodiscard]] DType dtype() const { return dtype_from_name(options.dtype).value(); }
};

void export_whole_model(const ExportSource& source, comm::Communicator& world) {
  export_hf(source.checkpoint, source.options.output, world,
            {.dtype = source.dtype(), .base = source.base});
}

void export_gguf_file(const ExportSource& source, comm::Communicator& world) {
  export_gguf(source.checkpoint, source.base, source.options.output, world,
              gguf_type(source.options.dtype).value());
}

void export_adapters(const ExportSource& source, comm::Communicator& world) {
  if (!holds_adapters(source.checkpoint))
    fail(ErrorKind::usage, "--adapter: {} contains no adapters; omit --adapter",
         source.checkpoint.path().string());
  const std::string base_name = comm::text_of_first_rank(
      world, [&] { return base_name_of(source.checkpoint, source.options); });
  export_peft(source.checkpoint, source.options.output, world, source.dtype(), base_name);
}

/// A format of `trireme export --format`.
struct ExportFormat {
  std::string_view name;
  bool whole;  // a whole model, with adapters merged; otherwise only the adapters
  std::vector<std::string_view> dtypes;
  void (*write)(const ExportSource& source, comm::Communicator& world);
};

std::span<const ExportFormat> export_rows() {
  static const std::array rows{
      ExportFormat{"hf", true, {"f32", "bf16", "f16"}, export_whole_model},
      ExportFormat{"gguf", true, {"f32", "f16", "bf16", "q8_0"}, export_gguf_file},
      ExportFormat{"peft", false, {"f32", "bf16", "f16"}, export_adapters},
  };
  return rows;
}

std::string format_names(std::string_view separator) {
  return joined(export_rows(), separator, [](const ExportFormat& one) { return one.name; });
}

const ExportFormat& format_of(const ExportCommand& options) {
  const std::string_view name =
      !options.format.empty() ? options.format : std::string_view(options.adapter ? "peft" : "hf");
  const std::span<const ExportFormat> rows = export_rows();
  const auto found = std::ranges::find(rows, name, &ExportFormat::name);
  if (found == rows.end())
    fail(ErrorKind::usage, "--format {}, must be one of {}", name, format_names(", "));
  if (std::ranges::find(found->dtypes, options.dtype) == found->dtypes.end())
    fail(ErrorKind::usage, "--dtype {}, must be one of {} for --format {}", options.dtype,
         joined(found->dtypes, ", "), name);
  if (options.adapter && found->whole)
    fail(ErrorKind::usage, "--adapter needs --format peft, but --format is {}", name);
  if (found->whole && !options.base_name.empty())
    fail(ErrorKind::usage, "--base-name {} requires --adapter: a whole model has no base",
         options.base_name);
  return *found;
}

}  // namespace

std::string export_formats() {
  return format_names("|");
}

std::string export_command(const ExportCommand& options, comm::Communicator& world) {
  if (options.checkpoint.empty() || options.output.empty())
    fail(ErrorKind::usage, "export needs --checkpoint DIR and --output DIR");
  const ExportFormat& format = format_of(options);
  if (is_hf_directory(options.checkpoint, world)) {
    if (options.ema)
      fail(ErrorKind::usage, "--ema: {} is a Hugging Face directory, which has no EMA",
           options.checkpoint);
    if (!format.whole)
      fail(ErrorKind::usage,
           "--adapter: {} is a Hugging Face directory, which contains no adapters",
           options.checkpoint);
    const TemporaryModel model(options.checkpoint, options.output, world, false);
    format.write({model.checkpoint(), nullptr, options}, world);
    return formatted("{} -> {}\n", options.checkpoint, options.output);
  }
  const Checkpoint saved = open_newest_good(options.checkpoint, world, options.allow_older);
  const Checkpoint checkpoint = options.ema ? saved.with_ema_weights() : saved;
  check_head(checkpoint.manifest().values, checkpoint.path().string());
  std::optional<TemporaryModel> base;
  if (format.whole && holds_adapters(checkpoint))
    base.emplace(options.base.empty() ? base_checkpoint_path(checkpoint) : fs::path(options.base),
                 options.output, world, false);
  format.write({checkpoint, base ? &base->checkpoint() : nullptr, options}, world);
  return formatted("{} -> {}\n", checkpoint.path().string(), options.output);
}

std::string import_command(const ImportCommand& options) {
  const int sources = static_cast<int>(!options.hf.empty()) +
                      static_cast<int>(!options.peft.empty()) +
                      static_cast<int>(!options.minimind.empty());
  if (sources != 1 || options.output.empty())
    fail(ErrorKind::usage,
         "import needs --output DIR and one of --hf DIR, --peft DIR (with --base MODEL) and "
         "--minimind FILE (with --model.preset NAME)");
  if (options.vocab.num_rows < 0)
    fail(ErrorKind::usage, "--resize-vocab {}, must be 0 (as many rows as needed) or more",
         options.vocab.num_rows);
  if (options.vocab.is_any() && options.hf.empty())
    fail(ErrorKind::usage, "import: --add-tokens and --resize-vocab require --hf");
  if (options.peft.empty() != options.base.empty())
    fail(ErrorKind::usage, "import: --peft and --base need each other");
  if (options.minimind.empty() && !options.tokenizer.empty())
    fail(ErrorKind::usage,
         "import: --tokenizer requires --minimind; other directories have their own tokenizer");
  if (!is_vacant(options.output)) {
    fail(ErrorKind::usage,
         "--output {} is not empty: weights are imported into a new run directory only{}",
         options.output,
         list_steps(fs::path(options.output) / "checkpoints").empty()
             ? std::string()
             : formatted(" (it has checkpoints: `trireme checkpoint verify {}` checks whether an "
                         "earlier import finished)",
                         options.output));
  }
  const fs::path directory = fs::path(options.output) / "checkpoints";
  if (!options.peft.empty()) {
    return formatted("{} -> {}\n", options.peft, import_adapters(options).string());
  }
  if (!options.minimind.empty()) {
    const fs::path made = import_minimind(
        {options.minimind, options.model, options.tokenizer, options.require_tokenizer}, directory);
    return formatted("{} -> {}\n", options.minimind, made.string());
  }
  check_is_hf(options.hf);
  return formatted(
      "{} -> {}\n", options.hf,
      import_hf(options.hf, directory, options.require_tokenizer, options.vocab).string());
}

}  // namespace trireme::checkpoint
