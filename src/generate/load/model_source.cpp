#include "generate/load/model_source.hpp"

#include <ATen/ATen.h>

#include <optional>
#include <vector>

#include "checkpoint/exchange/lora.hpp"
#include "checkpoint/exchange/special_tokens.hpp"
#include "checkpoint/format/model_head.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/format/state.hpp"
#include "checkpoint/hf/hf_model.hpp"
#include "checkpoint/maintenance/newest.hpp"
#include "checkpoint/tokenizer/model_template.hpp"
#include "core/error.hpp"
#include "device/torch_bridge.hpp"

namespace trireme::generate {
namespace {

std::map<std::string, std::string> carried_files(const checkpoint::Checkpoint& checkpoint) {
  std::map<std::string, std::string> files;
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           checkpoint::kGenerationConfigFile}) {
    if (checkpoint.has_file(name)) files[name] = checkpoint.file(name);
  }
  return files;
}

/// Reads a parameter in its saved dtype, from the base if an adapter checkpoint lacks it.
void read_parameter(const checkpoint::Checkpoint& newest,
                    const std::optional<checkpoint::Checkpoint>& base, const std::string& parameter,
                    const at::Tensor& weight) {
  const std::string name = formatted("param/{}", parameter);
  const checkpoint::Checkpoint& checkpoint =
      base && !newest.manifest().tensors.contains(name) ? *base : newest;
  const auto found = checkpoint.manifest().tensors.find(name);
  if (found == checkpoint.manifest().tensors.end() || weight.sizes() != found->second.shape) {
    fail(ErrorKind::data, "{}: tensor {} is missing or has another shape",
         checkpoint.path().string(), name);
  }
  std::vector<std::byte> bytes = checkpoint.read_logical(name);
  weight.copy_(at::from_blob(bytes.data(), found->second.shape,
                             device::to_scalar_type(found->second.dtype)));
}

ModelSource source_of(const checkpoint::Checkpoint& checkpoint) {
  ModelSource source;
  source.place = checkpoint.path();
  source.config =
      checkpoint::model_from_values(checkpoint.manifest().values, source.place.string());
  source.files = carried_files(checkpoint);
  const auto& values = checkpoint.manifest().values;
  if (const auto chat = values.find(checkpoint::kChatTemplateValue); chat != values.end())
    source.chat = chat->second;
  source.taught = checkpoint::template_of(values);
  source.jinja = checkpoint::jinja_name_of(values);
  std::optional<checkpoint::Checkpoint> base;
  if (checkpoint::holds_adapters(checkpoint)) {
    source.lora = checkpoint::lora_of(checkpoint);
    base = checkpoint::open_newest_good(checkpoint::base_checkpoint_path(checkpoint));
  }
  source.read = [checkpoint, base](const std::string& name, const at::Tensor& weight) {
    read_parameter(checkpoint, base, name, weight);
  };
  return source;
}

ModelSource source_of_hf(const std::filesystem::path& folder) {
  checkpoint::HfModel hf = checkpoint::open_hf_model(folder);
  checkpoint::checked_tensors(hf.model, hf.weights);
  ModelSource source;
  source.place = folder;
  source.config = hf.model.config;
  source.files = hf.model.files;
  std::map<std::string, std::string> values;
  source.taught = checkpoint::put_imported_template(source.files, values);
  source.jinja = checkpoint::jinja_name_of(values);
  source.read = [weights = hf.weights](const std::string& name, const at::Tensor& weight) {
    std::vector<std::byte> bytes = checkpoint::read_f32(weights.at(name), name);
    weight.copy_(at::from_blob(bytes.data(), weight.sizes(), at::kFloat));
  };
  return source;
}

}  // namespace

ModelSource open_source(const std::filesystem::path& place, bool allow_older, bool ema,
                        const std::string& head) {
  if (checkpoint::is_hf_directory(place)) {
    if (ema)
      fail(ErrorKind::usage, "--ema: {} is a Hugging Face directory, which has no EMA",
           place.string());
    return source_of_hf(place);
  }
  const checkpoint::Checkpoint saved = checkpoint::open_newest_good(place, allow_older);
  checkpoint::check_head(saved.manifest().values, saved.path().string(), head);
  return source_of(ema ? saved.with_ema_weights() : saved);
}

}  // namespace trireme::generate
