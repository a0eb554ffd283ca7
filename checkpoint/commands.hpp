#pragma once
#include <cstdint>
#include <filesystem>
#include <string>

#include "checkpoint/load.hpp"
#include "comm/communicator.hpp"

/// What `trireme checkpoint ...`, `export` and `import` do, as functions: options in, text for
/// standard output back, problems thrown. DIR is a step folder, a folder of step folders or a run
/// folder; where one checkpoint is meant, the newest good one of a run is taken, with a warning on
/// the log for each newer one that is not.
namespace trireme {

/// The checkpoint that `place` means, for generate, serve, export: a step folder as it is (its
/// content is verified while it is read), or the newest good one of a run. Throws Error(data) if
/// there is none.
Checkpoint open_newest_good(const std::filesystem::path& place);

/// One line a checkpoint, newest first: step, size, tensors, shards, run, or why it cannot be read.
/// Manifests only.
std::string checkpoint_list(const std::filesystem::path& place);

/// Checks every byte: of one checkpoint, or of all in a run. Throws Error(data) listing the damage
/// of all of them.
std::string checkpoint_verify(const std::filesystem::path& place);

/// The layout-independent hash of all tensors (hash_tensors), and a newline.
std::string checkpoint_hash(const std::filesystem::path& place);

/// Values, files, shards and tensors of one checkpoint, for people.
std::string checkpoint_inspect(const std::filesystem::path& place);

struct ExportCommand {
  std::string checkpoint;  // DIR as above
  std::string output;
  std::string dtype = "f32";

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("checkpoint", self.checkpoint, "checkpoint or run folder");
    visit("output", self.output, "Hugging Face model folder to write; must not exist");
    visit("dtype", self.dtype, "of the weights: f32 (exact), bf16 or f16");
  }
};

std::string export_command(const ExportCommand& options);

struct ImportCommand {
  std::string hf;
  std::string output;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("hf",
          self.hf,
          "Hugging Face model folder of Qwen3 or Llama shape (config.json, safetensors)");
    visit("output", self.output, "run folder to write; its checkpoints/step-000000000 appears");
  }
};

/// Collective; meant for one rank.
std::string import_command(const ImportCommand& options, Communicator& world);

}  // namespace trireme
