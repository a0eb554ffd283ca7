#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "model/transformer.hpp"
#include "text/chat/chat_writer.hpp"
#include "text/chat/jinja_chat.hpp"
#include "text/tokenizer.hpp"

namespace trireme::generate {

/// A model for inference and all objects that the model refers to. Shape, weights and tokenizer
/// come from one checkpoint or Hugging Face directory.
struct LoadedModel {
  std::unique_ptr<comm::Communicator> self;
  std::unique_ptr<parallel::Mesh> mesh;
  parallel::ParamRegistry registry;
  std::unique_ptr<model::Transformer> transformer;
  text::Tokenizer tokenizer;
  /// The tokenizer's end tokens and those of generation_config.json.
  std::vector<std::uint32_t> end_tokens;
  std::filesystem::path checkpoint;  // checkpoint or Hugging Face directory that was loaded
  /// The chat format the model was trained with, or the format of the tokenizer's own template
  /// (own_chat_format). Null if there is none.
  text::ChatTemplatePtr chat = nullptr;
  /// Name of the chat template used in training or import (template_of); "" if unknown.
  std::string chat_template_name = {};
  /// Name of the model's own Jinja text (jinja_name_of); "" if unknown.
  std::string jinja_name = {};
};

/// Returns a writer for conversations in the model's chat format. Throws Error(usage) if no chat
/// format is known, Error(data) if the tokenizer cannot be read.
text::ChatWriter chat_writer_of(const LoadedModel& model);

/// Loads a model from `place`: a Hugging Face directory (hf_model.hpp), or a run or checkpoint
/// (open_newest_good, with `allow_older`). With `ema`, loads the EMA of its weights. `head` is like
/// ModelOptions::head. Throws Error(data) if files are damaged or incomplete, or if the tokenizer
/// has more ids than the embedding has rows, and Error(usage) if the model has another head.
std::unique_ptr<LoadedModel> load_model(const std::filesystem::path& place,
                                        device::ParamDTypes dtypes, at::Device device,
                                        bool allow_older = false, bool ema = false,
                                        const std::string& head = {});

struct ModelOptions {
  std::string checkpoint;
  bool allow_older = false;
  bool ema = false;          // load the EMA of the weights
  std::int64_t threads = 0;  // 0: OMP_NUM_THREADS, else all cores
  std::string device = "auto";
  std::string precision = "fp32";
  std::string chat_template;  // name of the chat format, or "tokenizer"; "": the model's own
  std::string chat_template_file = {};  // Jinja template instead of a name
  std::string head = {};                // head that the model may have (checkpoint::kHeadValue)
  /// Storage of the matrices of linear layers: "precision" or "int8" (Int8Weights, on a CPU).
  std::string weights = "precision";
};

/// Throws Error(usage) if the options name no valid chat format, Error(data) if the file of a Jinja
/// template is not supported.
void check_chat_template(const ModelOptions& options);

/// Loads the model that the options name, in one of `local_size` processes on this machine. Sets
/// the number of CPU threads of this process. Throws Error(usage) for invalid options or devices.
std::unique_ptr<LoadedModel> load_model(const ModelOptions& options, int local_rank = 0,
                                        int local_size = 1);

/// Returns the XXH3 hash of all weights in the compute dtype. The hash does not depend on the
/// storage format.
std::string hash_weights(LoadedModel& model);

}  // namespace trireme::generate
