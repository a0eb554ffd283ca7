#include "checkpoint/minimind/minimind_import.hpp"

#include <algorithm>
#include <array>
#include <memory>

#include "checkpoint/exchange/import_weights.hpp"
#include "checkpoint/exchange/safetensors.hpp"
#include "checkpoint/minimind/torch_file.hpp"
#include "core/error.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

struct Renamed {
  std::string_view old_name;
  std::string_view name;
};

constexpr std::array<Renamed, 3> kOfModel{{{"tok_embeddings.weight", "model.embed_tokens.weight"},
                                           {"norm.weight", "model.norm.weight"},
                                           {"output.weight", "lm_head.weight"}}};
constexpr std::array<Renamed, 9> kOfLayer{{{"attention_norm.weight", "input_layernorm.weight"},
                                           {"attention.wq.weight", "self_attn.q_proj.weight"},
                                           {"attention.wk.weight", "self_attn.k_proj.weight"},
                                           {"attention.wv.weight", "self_attn.v_proj.weight"},
                                           {"attention.wo.weight", "self_attn.o_proj.weight"},
                                           {"ffn_norm.weight", "post_attention_layernorm.weight"},
                                           {"feed_forward.w1.weight", "mlp.gate_proj.weight"},
                                           {"feed_forward.w3.weight", "mlp.up_proj.weight"},
                                           {"feed_forward.w2.weight", "mlp.down_proj.weight"}}};

constexpr std::array<Renamed, 3> kOfMlp{{{".w1.weight", ".gate_proj.weight"},
                                         {".w3.weight", ".up_proj.weight"},
                                         {".w2.weight", ".down_proj.weight"}}};

/// Renames a tensor of experts (without the layer prefix): feed_forward.experts.3.w1.weight, and
/// mlp.shared_experts.0.gate_proj.weight of V2.5.
std::string new_name_in_experts(std::string_view old_name) {
  constexpr std::string_view kOldModule = "feed_forward.";
  constexpr std::string_view kModule = "mlp.";
  constexpr std::string_view kFirstShared = "mlp.shared_experts.0.";
  std::string name(old_name);
  if (name.starts_with(kOldModule)) name.replace(0, kOldModule.size(), kModule);
  for (const Renamed& one : kOfMlp) {
    if (name.ends_with(one.old_name))
      name.replace(name.size() - one.old_name.size(), one.old_name.size(), one.name);
  }
  if (name.starts_with(kFirstShared)) name.erase(kFirstShared.size() - 2, 2);
  return name;
}

/// Returns the Hugging Face name. A name that is not from V1 or V2 is returned unchanged.
std::string new_name(std::string_view old_name) {
  for (const Renamed& one : kOfModel) {
    if (one.old_name == old_name) return std::string(one.name);
  }
  constexpr std::string_view kLayers = "layers.";
  const bool is_new = old_name.starts_with("model.layers.");
  if (!is_new && !old_name.starts_with(kLayers)) return std::string(old_name);
  const std::size_t dot = old_name.find('.', old_name.find(kLayers) + kLayers.size());
  if (dot == std::string_view::npos) return std::string(old_name);
  const std::string_view layer = old_name.substr(0, dot + 1);
  const std::string_view rest = old_name.substr(dot + 1);
  for (const Renamed& one : kOfLayer) {
    if (one.old_name == rest) return cat("model.", layer, one.name);
  }
  const std::string name = new_name_in_experts(rest);
  if (name == rest) return std::string(old_name);
  return cat(is_new ? "" : "model.", layer, name);
}

/// Removes the prefixes that torch.compile and DistributedDataParallel add.
std::string_view without_wrapper(std::string_view name) {
  for (const std::string_view wrapper : {"_orig_mod.", "module."}) {
    if (name.starts_with(wrapper)) name.remove_prefix(wrapper.size());
  }
  return name;
}

WeightSource read_source(const fs::path& path) {
  if (path.extension() == ".safetensors") {
    const auto file = std::make_shared<const SafetensorsFile>(SafetensorsFile::open(path));
    std::map<std::string, std::shared_ptr<const SafetensorsFile>> tensors;
    for (const auto& [name, entry] : file->entries()) tensors.emplace(name, file);
    return weights_of(tensors);
  }
  const auto file = std::make_shared<const TorchFile>(TorchFile::open(path));
  WeightSource weights;
  for (const auto& [name, tensor] : file->tensors()) {
    weights[name] = {tensor.dtype, tensor.shape,
                     [file, name = name](std::span<std::byte> bytes) { file->read(name, bytes); }};
  }
  return weights;
}

/// Moves rows 2i and 2i+1 of each head to i and i + D/2.
void pairs_to_halves(std::span<std::byte> rows, std::int64_t num_rows, std::int64_t head_dim) {
  const std::size_t row = rows.size() / static_cast<std::size_t>(num_rows);
  const std::vector<std::byte> pairs(rows.begin(), rows.end());
  for (std::int64_t to = 0; to < num_rows; ++to) {
    const std::int64_t in_head = to % head_dim;
    const std::int64_t half = head_dim / 2;
    const std::int64_t from =
        to - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
    std::copy_n(pairs.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(from) * row),
                row,
                rows.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(to) * row));
  }
}

WeightTensor rotated_by_halves(WeightTensor tensor, std::int64_t head_dim) {
  const std::int64_t num_rows = tensor.shape.empty() ? 0 : tensor.shape[0];
  if (num_rows == 0 || num_rows % head_dim != 0) return tensor;  // the shape check refuses it later
  tensor.read = [read = tensor.read, num_rows, head_dim](std::span<std::byte> bytes) {
    read(bytes);
    pairs_to_halves(bytes, num_rows, head_dim);
  };
  return tensor;
}

WeightSource as_hugging_face(const WeightSource& theirs, std::int64_t head_dim,
                             const std::string& where) {
  WeightSource weights;
  for (const auto& [name, tensor] : theirs) {
    const std::string_view old_name = without_wrapper(name);
    const bool is_rotated =
        old_name.ends_with("attention.wq.weight") || old_name.ends_with("attention.wk.weight");
    const WeightTensor& ours = is_rotated ? rotated_by_halves(tensor, head_dim) : tensor;
    if (!weights.emplace(new_name(old_name), ours).second)
      fail(ErrorKind::data, "{}: two tensors map to {}", where, new_name(old_name));
  }
  return weights;
}

/// MiniMind's trainer/train_lora.py saves only the adapters: "...self_attn.q_proj.lora.A.weight".
bool is_adapter_name(std::string_view name) {
  return name.find(".lora.A.") != std::string_view::npos ||
         name.find(".lora.B.") != std::string_view::npos ||
         name.find(".lora_A.") != std::string_view::npos ||
         name.find(".lora_B.") != std::string_view::npos;
}

[[noreturn]] void refuse_without_embedding(const WeightSource& weights, const std::string& where) {
  const auto adapters = std::count_if(weights.begin(), weights.end(),
                                      [](const auto& one) { return is_adapter_name(one.first); });
  if (adapters > 0) {
    fail(
        ErrorKind::data,
        "{} is an adapter (LoRA), not a model: {} of its {} tensors are adapter matrices such as {}. Add it to its model (W += B A) and import the merged file, or save it as a directory of Hugging Face peft and give --peft DIR --base MODEL",
        where, adapters, weights.size(),
        std::find_if(weights.begin(), weights.end(), [](const auto& one) {
          return is_adapter_name(one.first);
        })->first);
  }
  fail(ErrorKind::data,
       "{} holds no embedding (tok_embeddings.weight or model.embed_tokens.weight): it is not a "
       "whole model of MiniMind; its first tensor is {}",
       where, weights.empty() ? std::string("missing") : weights.begin()->first);
}

}  // namespace

fs::path import_minimind(const MinimindImport& import, const fs::path& directory) {
  const std::string where = import.file.string();
  const WeightSource theirs = read_source(import.file);
  model::ModelConfig model = import.model;
  std::int64_t rows = 0;
  for (const auto& [name, tensor] : theirs) {
    if (new_name(without_wrapper(name)) == "model.embed_tokens.weight" && tensor.shape.size() == 2)
      rows = tensor.shape[0];
  }
  if (rows == 0) refuse_without_embedding(theirs, where);
  if (model.vocab_size == 0) model.vocab_size = rows;
  model::resolve(model, 0);
  ImportedModel imported{model, {}, {}, where, import.require_tokenizer};
  if (!import.tokenizer.empty()) imported.files = tokenizer_files_of(import.tokenizer);
  return save_imported(std::move(imported), as_hugging_face(theirs, model.head_dim, where),
                       directory);
}

}  // namespace trireme::checkpoint
