#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/exchange/resize_vocab.hpp"
#include "comm/communicator.hpp"
#include "core/files/json.hpp"
#include "model/config.hpp"

/// Implements `trireme checkpoint ...`, `export` and `import` as functions. They take options,
/// return the text for standard output and throw errors.
///
/// DIR is a step directory, a directory of step directories or a run directory. If a command needs
/// one checkpoint and DIR contains several, it uses the newest (newest.hpp). If the newest
/// checkpoint is damaged, the command throws Error(data); with `--allow-older`, it uses the newest
/// good one instead. Functions with a parameter `world` are collective: the ranks split the work,
/// and every rank returns or throws the same as one rank alone.
namespace trireme::checkpoint {

/// Help text of `--allow-older`.
inline constexpr const char* kAllowOlderHelp =
    "if the newest checkpoint of a run is damaged, use the newest good one (else exit code 3)";

/// A checkpoint in a list, with facts of its manifest.
struct ListedCheckpoint {
  std::filesystem::path directory = {};
  std::int64_t step = 0;
  std::string problem = {};  // why the checkpoint cannot be read; "": it can
  double bytes = 0;          // size of all files
  std::size_t tensors = 0;
  std::size_t shards = 0;
  std::string run_id = {};
  std::optional<double> valid_loss = {};  // nullopt: there was no validation at this step
};

/// Lists the checkpoints of a run, newest first. Reads manifests only.
std::vector<ListedCheckpoint> checkpoint_list(const std::filesystem::path& place);
/// Returns one line per checkpoint.
std::string list_text(std::span<const ListedCheckpoint> checkpoints);
/// Returns {"checkpoints": [...]}, with `problem` or the other members of each checkpoint.
Json list_json(std::span<const ListedCheckpoint> checkpoints);

/// Checks every byte of one checkpoint or of all checkpoints of a run, including its frozen copies
/// such as RUN/base. Returns one line per checkpoint. Throws Error(data) that lists all damage and
/// names the good checkpoints.
std::string checkpoint_verify(const std::filesystem::path& place, comm::Communicator& world);

/// Returns the layout-independent hash of all tensors (hash_tensors) and a newline.
std::string checkpoint_hash(const std::filesystem::path& place, comm::Communicator& world,
                            bool allow_older = false);

/// Lists the values, files, shards and tensors of one checkpoint. With `layout`, lists the slices
/// in the format of `checkpoint reshard --layout`.
std::string checkpoint_inspect(const std::filesystem::path& place, bool layout = false,
                               bool allow_older = false);

/// The differences between two checkpoints (checkpoint_differences). If there are none, the text is
/// one line that says so.
struct CheckpointDiff {
  std::string text;
  bool same = false;
};

CheckpointDiff checkpoint_diff(const std::filesystem::path& a, const std::filesystem::path& b,
                               bool allow_older = false);

struct ReshardCommand {
  std::string from;
  std::string output;      // directory of checkpoints; its step-NNNNNNNNN must not exist
  std::int64_t ranks = 0;  // number of ranks to split the bytes over
  std::string layout;      // instead of `ranks`: file with a layout (parse_layout)
  bool allow_older = false;
};

std::string checkpoint_reshard(const ReshardCommand& options, comm::Communicator& world);

struct PruneCommand {
  std::string place;  // run directory, or directory of its checkpoints
  std::int64_t keep_last = 3;
  std::int64_t keep_every = 0;
  std::int64_t keep_best = 0;
  bool dry_run = false;
};

/// Deletes old checkpoints of a run (prune_checkpoints). Holds the run lock meanwhile, so no job
/// may be using the run.
std::string checkpoint_prune(const PruneCommand& options);

struct ExportCommand {
  std::string checkpoint = {};  // DIR as explained at the top of this file
  std::string output = {};
  std::string dtype = "f32";
  std::string format = {};  // a name of export_formats(); "": hf, or peft with `adapter`
  bool adapter = false;     // export only the adapters: format peft
  // base model of the adapters; "": directory "base" in the run of the adapters
  std::string base = {};
  std::string base_name = {};  // with format peft: base_model_name_or_path; "": base_name_of
  bool allow_older = false;
  bool ema = false;  // export the EMA of the weights
};

/// Returns "hf|peft", the values of `--format`.
std::string export_formats();

std::string export_command(const ExportCommand& options, comm::Communicator& world);

/// Exactly one of `hf`, `peft` and `minimind` must be set.
struct ImportCommand {
  std::string hf = {};
  std::string peft = {};
  std::string base = {};  // with peft
  std::string minimind = {};
  model::ModelConfig model = {};  // with minimind
  std::string tokenizer = {};     // with minimind; "": none
  std::string output = {};
  bool require_tokenizer = false;  // refuse a tokenizer that cannot be read
  VocabChange vocab = {};          // with hf
};

std::string import_command(const ImportCommand& options);

}  // namespace trireme::checkpoint
