#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/disk/run_lock.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/convert.hpp"
#include "checkpoint/hf/hf_config.hpp"
#include "checkpoint/hf/hf_export.hpp"
#include "checkpoint/hf/safetensors.hpp"
#include "checkpoint/hf/tokenizer_size.hpp"
#include "checkpoint/save/save.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Weights = std::map<std::string, std::shared_ptr<const SafetensorsFile>>;

/// What a tokenizer needs; anything else of the folder (other formats of the
/// weights, pictures) stays behind.
constexpr const char* kCarried[] = {
    "tokenizer.json",      "tokenizer_config.json", "special_tokens_map.json",
    kGenerationConfigFile, "chat_template.jinja",   "vocab.json",
    "merges.txt",          "added_tokens.json"};

void check_weights(const Weights& weights, const std::vector<HfTensor>& tensors, bool tied,
                   const std::string& where) {
  std::string problems;
  std::set<std::string> known;
  for (const HfTensor& tensor : tensors) {
    known.insert(tensor.name);
    const auto found = weights.find(tensor.name);
    if (found == weights.end()) {
      problems += formatted("\n  missing: {}", tensor.name);
      continue;
    }
    const SafetensorsEntry& entry = found->second->entries().at(tensor.name);
    const bool is_float = entry.dtype == DType::f32 || entry.dtype == DType::bf16 ||
                          entry.dtype == DType::f16 || entry.dtype == DType::f64;
    if (entry.shape != tensor.shape)
      problems += formatted("\n  {}: shape differs from config.json's", tensor.name);
    if (!is_float)
      problems +=
          formatted("\n  {}: dtype {} is not supported", tensor.name, dtype_name(entry.dtype));
  }
  for (const auto& [name, file] : weights) {
    // Some writers store the tied output matrix again, and old ones the rotary frequencies; both
    // follow from the rest.
    const bool redundant =
        (tied && name == "lm_head.weight") || name.ends_with(".rotary_emb.inv_freq");
    if (!known.contains(name) && !redundant) problems += formatted("\n  extra: {}", name);
  }
  if (!problems.empty()) fail(ErrorKind::data, "{} cannot be imported:{}", where, problems);
}

std::vector<std::byte> read_f32(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry& entry = file.entries().at(name);
  std::vector<std::byte> raw(entry.end - entry.begin);
  file.read(name, raw);
  std::vector<std::byte> converted(raw.size() / size_of(entry.dtype) * size_of(DType::f32));
  convert_floats(entry.dtype, raw, DType::f32, converted);
  const std::span values(reinterpret_cast<const float*>(converted.data()),
                         converted.size() / sizeof(float));
  if (!std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); }))
    fail(ErrorKind::data, "{} holds values that are not finite (NaN or infinity)", name);
  return converted;
}

/// transformers does not tie what differs, whatever config.json says.
bool has_another_output_matrix(const Weights& weights) {
  const auto raw = [&](const char* name) {
    const SafetensorsFile& file = *weights.at(name);
    std::vector<std::byte> bytes(file.entries().at(name).end - file.entries().at(name).begin);
    file.read(name, bytes);
    return bytes;
  };
  constexpr const char* kEmbedding = "model.embed_tokens.weight";
  constexpr const char* kOutput = "lm_head.weight";
  return weights.contains(kEmbedding) && weights.contains(kOutput) &&
         raw(kEmbedding) != raw(kOutput);
}

/// Which tokens end a text: transformers asks generation_config.json, and where there is none the
/// model's own configuration.
void add_generation_config(const Json& config, const fs::path& model,
                           std::map<std::string, std::string>& files) {
  const SpecialTokenIds ids = listed_token_ids(config, (model / "config.json").string());
  if (const auto found = files.find(kGenerationConfigFile); found != files.end()) {
    const std::string where = (model / kGenerationConfigFile).string();
    (void)listed_token_ids(parse_json(found->second, where), where);
  } else if (ids.contains("eos")) {
    files[kGenerationConfigFile] = hf_generation_text(ids);
  }
}

}  // namespace

std::filesystem::path import_hf(const std::filesystem::path& model,
                                const std::filesystem::path& folder) {
  const fs::path config_path = model / "config.json";
  const Json hf_config = read_json(config_path);
  ModelConfig config = model_from_hf(hf_config, config_path.string());
  const Weights weights = open_safetensors_folder(model);
  if (config.num_layers > static_cast<std::int64_t>(weights.size())) {
    fail(ErrorKind::data, "{}: num_hidden_layers = {}, but the weights are {} tensors in all",
         config_path.string(), config.num_layers, weights.size());
  }
  if (config.tie_embeddings && has_another_output_matrix(weights)) {
    config.tie_embeddings = false;
    log::warn(formatted(
        "{}: tie_word_embeddings is true, but lm_head.weight is not the embedding: imported untied, as transformers loads it",
        config_path.string()));
  }
  const std::vector<HfTensor> tensors = hf_tensors(config);
  check_weights(weights, tensors, config.tie_embeddings, model.string());

  StateDict state;
  put_model_values(config, state.values);
  state.values.emplace("step", "0");
  for (const char* name : kCarried) {
    if (fs::exists(model / name)) state.files[name] = read_file(model / name);
  }
  add_generation_config(hf_config, model, state.files);
  check_tokenizer_fits(num_token_ids(state.files), config, model.string());
  std::vector<std::vector<std::byte>> storage;
  Hasher content;
  for (const HfTensor& tensor : tensors) {
    storage.push_back(read_f32(*weights.at(tensor.name), tensor.name));
    content.update(storage.back());
    state.tensors.push_back({formatted("param/{}", tensor.name), DType::f32, tensor.shape,
                             Slice::whole(tensor.shape), storage.back(), /*owner=*/true});
  }
  // Two imports into one folder: the second is refused.
  const RunLock lock(locked_folder(folder), RunLockOptions{});
  SelfCommunicator alone;
  // A run id from the content: importing the same folder twice gives the same bytes.
  return save_checkpoint(folder, 0, state, alone,
                         {.run_id = formatted("import-{}", content.hex().substr(0, 16))});
}

}  // namespace trireme
