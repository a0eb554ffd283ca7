#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "comm/communicator.hpp"
#include "model/config.hpp"

/// What `trireme checkpoint ...`, `export` and `import` do, as functions: options in, text for
/// standard output back, problems thrown. DIR is a step folder, a folder of step folders or a run
/// folder; where one checkpoint is meant, the newest of a run is taken (newest.hpp). If that is
/// damaged, the command fails (Error(data)) unless it may take an older one, `--allow-older`.
/// Those with a `world` are collective: its ranks share the work, and each returns or throws what
/// one alone would.
namespace trireme {

/// What `--allow-older` says on every page that has it.
inline constexpr const char* kAllowOlderHelp =
    "where a run's newest checkpoint is damaged, take the newest good one (else exit code 3)";

/// One line a checkpoint, newest first: step, size, tensors, shards, run, or why
/// it cannot be read. Manifests only.
std::string checkpoint_list(const std::filesystem::path& place);

/// Checks every byte: of one checkpoint, or of all in a run. Throws Error(data) listing the damage
/// of all of them.
std::string checkpoint_verify(const std::filesystem::path& place, Communicator& world);

/// The layout-independent hash of all tensors (hash_tensors), and a newline.
std::string checkpoint_hash(const std::filesystem::path& place, Communicator& world,
                            bool allow_older = false);

/// Values, files, shards and tensors of one checkpoint, for people; or with `layout` the slices, as
/// `checkpoint reshard --layout` reads them.
std::string checkpoint_inspect(const std::filesystem::path& place, bool layout = false,
                               bool allow_older = false);

/// What differs between the states of two checkpoints (checkpoint_differences),
/// or that nothing does.
struct CheckpointDiff {
  std::string text;
  bool same = false;
};

CheckpointDiff checkpoint_diff(const std::filesystem::path& a, const std::filesystem::path& b,
                               bool allow_older = false);

struct ReshardCommand {
  std::string from;
  std::string output;      // folder of checkpoints; its step-NNNNNNNNN must not exist
  std::int64_t ranks = 0;  // spread by bytes over so many
  std::string layout;      // or a file: read_layout
  bool allow_older = false;
};

std::string checkpoint_reshard(const ReshardCommand& options, Communicator& world);

struct PruneCommand {
  std::string place;  // run folder, or folder of its checkpoints
  std::int64_t keep_last = 3;
  std::int64_t keep_every = 0;
  std::int64_t keep_best = 0;
  bool dry_run = false;
};

/// Prunes a run that no job is using (RunLock is held meanwhile).
std::string checkpoint_prune(const PruneCommand& options);

struct ExportCommand {
  std::string checkpoint = {};  // DIR as above
  std::string output = {};
  std::string dtype = "f32";
  bool adapter = false;        // a PEFT folder of the adapters alone
  std::string base = {};       // of adapters; "": "base" in their run
  std::string base_name = {};  // with `adapter`: base_model_name_or_path; "": base_name_of
  bool allow_older = false;
};

std::string export_command(const ExportCommand& options, Communicator& world);

/// One of `hf`, `peft` and `minimind`.
struct ImportCommand {
  std::string hf = {};
  std::string peft = {};
  std::string base = {};  // with peft
  std::string minimind = {};
  ModelConfig model = {};      // with minimind
  std::string tokenizer = {};  // with minimind; "": none
  std::string output = {};
  bool require_tokenizer = false;  // refuse a tokenizer that cannot be read
};

std::string import_command(const ImportCommand& options);

}  // namespace trireme
