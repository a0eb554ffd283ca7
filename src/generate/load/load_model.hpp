#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "model/transformer.hpp"
#include "text/chat/chat_writer.hpp"
#include "text/tokenizer.hpp"

namespace trireme {

/// A model for inference with everything it refers to: shape, weights and tokenizer
/// all come from one checkpoint or Hugging Face folder.
struct LoadedModel {
  std::unique_ptr<Communicator> self;
  std::unique_ptr<Mesh> mesh;
  ParamRegistry registry;
  std::unique_ptr<Transformer> transformer;
  Tokenizer tokenizer;
  /// The tokenizer's own, and those that generation_config.json lists.
  std::vector<std::uint32_t> end_tokens;
  std::filesystem::path
      checkpoint;  // the step folder, or Hugging Face folder, that it was read from
  /// How its chats are written: what it was trained with, else what is nearest to the tokenizer's
  /// own template. Null: none that is known.
  const ChatTemplate* chat = nullptr;
  /// Name of the chat template that it was trained or imported with (template_of); "": not known.
  std::string chat_template_name = {};
};

/// Writes conversations in the model's chat format. Throws Error(usage) if there is none that is known.
ChatWriter chat_writer_of(const LoadedModel& model);

/// `place`: a Hugging Face folder (hf_model.hpp), or as in open_newest_good, with `allow_older`.
/// Throws Error(data) for what is damaged or incomplete, and for a tokenizer with more ids than the
/// embedding has rows.
std::unique_ptr<LoadedModel> load_model(const std::filesystem::path& place, ParamDTypes dtypes,
                                        at::Device device, bool allow_older = false);

/// What a command that uses a model is told of it.
struct ModelOptions {
  std::string checkpoint;
  bool allow_older = false;
  std::int64_t threads = 0;  // 0: OMP_NUM_THREADS, else all cores
  std::string device = "auto";
  std::string precision = "fp32";
  std::string chat_template;  // name of the chat format; "": the checkpoint's
};

/// The same, for one of `local_size` processes on this machine; it computes with `threads` from here
/// on. Throws Error(usage) for options that cannot be, and for a device that is not there. Its chat
/// format is the one that the options name, if they name one.
std::unique_ptr<LoadedModel> load_model(const ModelOptions& options, int local_rank = 0,
                                        int local_size = 1);

/// XXH3 of all weights as they are computed with: equal for equal models, wherever they lie.
std::string hash_weights(LoadedModel& model);

}  // namespace trireme
