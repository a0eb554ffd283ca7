#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "model/config.hpp"
#include "model/lora/lora_config.hpp"

namespace trireme::generate {

/// The source of a model: a checkpoint or a Hugging Face directory.
struct ModelSource {
  std::filesystem::path place;
  model::ModelConfig config;
  model::LoraConfig lora;
  std::map<std::string, std::string> files;  // tokenizer files
  std::string chat;                          // name of the chat format; "" if unknown
  std::string taught;                        // result of template_of, also for imported models
  std::string jinja;                         // result of jinja_name_of, also for imported models
  /// Reads a parameter, converts it to the dtype of `weight` and stores it there.
  std::function<void(const std::string& name, const at::Tensor& weight)> read;
};

/// Opens the source at `place`. Parameters and errors are those of load_model().
ModelSource open_source(const std::filesystem::path& place, bool allow_older, bool ema,
                        const std::string& head);

}  // namespace trireme::generate
