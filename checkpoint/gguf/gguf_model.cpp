#include "checkpoint/gguf/gguf_model.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "checkpoint/format/model_values.hpp"
#include "core/error.hpp"
#include "core/join.hpp"
#include "model/layer_list.hpp"
#include "model/rope_scaling.hpp"

namespace trireme::checkpoint {
namespace {

/// Options that every architecture computes, or that only training reads.
constexpr std::array<std::string_view, 18> kFree{
    "preset",       "depth",           "hidden_size",    "num_layers",
    "num_heads",    "num_kv_heads",    "head_dim",       "intermediate_size",
    "vocab_size",   "max_seq_len",     "tie_embeddings", "rope_theta",
    "rope_scaling", "norm_eps",        "dropout",        "attention_dropout",
    "init",         "zero_projections"};

/// The windows of Gemma 3 in llama.cpp: every sixth layer has none.
constexpr std::int64_t kGemmaPattern = 6;
constexpr double kGemmaLocalTheta = 10000.0;

std::span<const GgufArchitecture> architectures() {
  static const std::array rows{
      GgufArchitecture{.name = "qwen3", .required = {{"qk_norm", "true"}}},
      GgufArchitecture{.name = "qwen3moe",
                       .required = {{"qk_norm", "true"}},
                       .experts = true,
                       .needs_experts = true},
      GgufArchitecture{.name = "qwen2", .required = {{"qk_norm", "false"}, {"qkv_bias", "true"}}},
      GgufArchitecture{.name = "llama",
                       .required = {{"qk_norm", "false"}},
                       .free = {"qkv_bias", "attention_output_bias", "mlp_bias"},
                       .experts = true,
                       .pairs_neighbours = true,
                       .frequency_factors = true},
      GgufArchitecture{
          .name = "gemma3",
          .required = {{"qk_norm", "true"}, {"post_norms", "true"}, {"activation", "gelu_tanh"}},
          .free = {"embedding_scale", "sliding_window", "full_attention_layers",
                   "local_rope_theta"}},
  };
  return rows;
}

/// Returns the options that have another value than Gemma 3 in llama.cpp.
std::vector<std::string> gemma_differences(const model::ModelConfig& config) {
  std::vector<std::string> found;
  if (config.embedding_scale != std::sqrt(static_cast<double>(config.hidden_size)))
    found.push_back("model.embedding_scale that is not the root of model.hidden_size");
  std::vector<std::int64_t> full;
  for (std::int64_t layer = kGemmaPattern - 1; layer < config.num_layers; layer += kGemmaPattern)
    full.push_back(layer);
  if (config.sliding_window == 0)
    found.push_back("model.sliding_window = 0");
  else if (config.full_attention_layers != model::layers_text(full))
    found.push_back(formatted("model.full_attention_layers that are not every sixth layer (\"{}\")",
                              model::layers_text(full)));
  if (config.sliding_window > 0 && config.local_rope_theta != kGemmaLocalTheta)
    found.push_back("model.local_rope_theta that is not 10000");
  return found;
}

std::vector<std::string> expert_differences(const model::MoeConfig& moe,
                                            const GgufArchitecture& architecture) {
  std::vector<std::string> found;
  if (!moe.on()) {
    if (architecture.needs_experts) found.emplace_back("model.num_experts = 0");
    return found;
  }
  if (!architecture.experts) found.push_back(formatted("model.num_experts = {}", moe.num_experts));
  if (moe.num_shared_experts > 0)
    found.push_back(formatted("model.num_shared_experts = {}", moe.num_shared_experts));
  if (moe.first_dense_layers > 0)
    found.push_back(formatted("model.first_dense_layers = {}", moe.first_dense_layers));
  if (!moe.norm_topk_prob) found.emplace_back("model.norm_topk_prob = false");
  if (moe.router_score != "softmax")
    found.push_back(formatted("model.router_score = {}", moe.router_score));
  if (moe.has_bias()) found.emplace_back("model.router_balance = bias");
  return found;
}

/// Returns the options of the model that the architecture does not compute: "model.x = 3".
std::vector<std::string> differences(const model::ModelConfig& config,
                                     const GgufArchitecture& architecture) {
  model::ModelConfig plain;
  plain.moe = config.moe;  // expert_differences compares it
  std::map<std::string, std::string> ours;
  std::map<std::string, std::string> wanted;
  put_model_values(config, ours);
  put_model_values(plain, wanted);
  for (const auto& [key, value] : architecture.required) wanted[cat("model.", key)] = value;
  std::vector<std::string> found;
  for (const auto& [key, value] : ours) {
    const std::string_view name = std::string_view(key).substr(std::string_view("model.").size());
    const bool is_free = std::ranges::find(kFree, name) != kFree.end() ||
                         std::ranges::find(architecture.free, name) != architecture.free.end();
    if (!is_free && wanted[key] != value) found.push_back(formatted("{} = {}", key, value));
  }
  const auto add = [&](std::vector<std::string> more) {
    std::ranges::move(more, std::back_inserter(found));
  };
  add(expert_differences(config.moe, architecture));
  if (config.moe.on() && config.mlp_bias) found.emplace_back("model.mlp_bias = true with experts");
  if (architecture.name == "gemma3") add(gemma_differences(config));
  using enum model::RopeScaling::Kind;
  const model::RopeScaling::Kind kind = model::parse_rope_scaling(config.rope_scaling).kind;
  const bool has_kind =
      kind == none || kind == linear || (kind == llama3 && architecture.frequency_factors);
  if (!has_kind) found.push_back(formatted("model.rope_scaling = {}", model::rope_kind_name(kind)));
  return found;
}

/// Returns the divisors of the rotary frequencies: [head_dim / 2].
std::vector<float> frequency_factors(const model::ModelConfig& config,
                                     const model::RopeScaling& scaling) {
  const auto plain = model::rope_frequencies(config.head_dim, config.rope_theta, {});
  const auto scaled =
      model::rope_frequencies(config.head_dim, config.rope_theta, scaling, config.max_seq_len);
  std::vector<float> factors;
  for (std::size_t i = 0; i < plain.size(); ++i)
    factors.push_back(static_cast<float>(plain[i] / scaled[i]));
  return factors;
}

struct TensorName {
  std::string_view ours;
  std::string_view file;
};

/// Names of modules in a block. Names of Gemma 3's norms differ from their names in Hugging Face.
constexpr std::array<TensorName, 17> kBlockNames{{{"input_layernorm", "attn_norm"},
                                                  {"self_attn.q_proj", "attn_q"},
                                                  {"self_attn.k_proj", "attn_k"},
                                                  {"self_attn.v_proj", "attn_v"},
                                                  {"self_attn.o_proj", "attn_output"},
                                                  {"self_attn.q_norm", "attn_q_norm"},
                                                  {"self_attn.k_norm", "attn_k_norm"},
                                                  {"post_attention_layernorm", "ffn_norm"},
                                                  {"attention_output_norm", "post_attention_norm"},
                                                  {"mlp_output_norm", "post_ffw_norm"},
                                                  {"mlp.gate_proj", "ffn_gate"},
                                                  {"mlp.up_proj", "ffn_up"},
                                                  {"mlp.down_proj", "ffn_down"},
                                                  {"mlp.gate", "ffn_gate_inp"},
                                                  {"gate_proj", "ffn_gate_exps"},
                                                  {"up_proj", "ffn_up_exps"},
                                                  {"down_proj", "ffn_down_exps"}}};

std::string_view file_module(std::string_view ours) {
  const auto* found = std::ranges::find(kBlockNames, ours, &TensorName::ours);
  if (found == kBlockNames.end()) fail(ErrorKind::internal, "no GGUF name for {}", ours);
  return found->file;
}

/// Returns the name in the file. All experts of a layer have the same name.
std::string file_name(std::string_view ours) {
  if (ours == "model.embed_tokens.weight") return "token_embd.weight";
  if (ours == "model.norm.weight") return "output_norm.weight";
  if (ours == "lm_head.weight") return "output.weight";
  constexpr std::string_view kBlock = "model.layers.";
  constexpr std::string_view kExpert = "mlp.experts.";
  TRIREME_ASSERT(ours.starts_with(kBlock));
  ours.remove_prefix(kBlock.size());
  const std::size_t dot = ours.find('.');
  const std::size_t end = ours.rfind('.');
  std::string_view module = ours.substr(dot + 1, end - dot - 1);
  if (module.starts_with(kExpert)) module = module.substr(module.find('.', kExpert.size()) + 1);
  return formatted("blk.{}.{}{}", ours.substr(0, dot), file_module(module), ours.substr(end));
}

/// Reorders the rows of each head from (i, i + head_dim / 2) to neighbours.
void pair_neighbours(std::span<std::byte> bytes, std::int64_t num_rows, std::int64_t head_dim) {
  const std::size_t row = bytes.size() / static_cast<std::size_t>(num_rows);
  const std::vector<std::byte> old(bytes.begin(), bytes.end());
  for (std::int64_t to = 0; to < num_rows; ++to) {
    const std::int64_t in_head = to % head_dim;
    const std::int64_t from = to - in_head + in_head / 2 + in_head % 2 * (head_dim / 2);
    std::copy_n(old.begin() + static_cast<std::ptrdiff_t>(row) * from, row,
                bytes.begin() + static_cast<std::ptrdiff_t>(row) * to);
  }
}

DType source_dtype(GgufType type) {
  switch (type) {
    case GgufType::f16:
      return DType::f16;
    case GgufType::bf16:
      return DType::bf16;
    default:
      return DType::f32;
  }
}

GgufType tensor_type(GgufType wanted, const SafetensorsSource& source) {
  const bool is_router = source.name.ends_with(".mlp.gate.weight");
  if (source.shape.size() < 2 || is_router) return GgufType::f32;
  const bool has_blocks = source.shape.back() % static_cast<std::int64_t>(kBlockElements) == 0;
  return wanted == GgufType::q8_0 && !has_blocks ? GgufType::f16 : wanted;
}

/// Returns a function that fills the bytes of one source, in the order of rows of the file.
std::function<void(std::span<std::byte>)> source_fill(const SafetensorsSource& source,
                                                      bool pairs_neighbours,
                                                      std::int64_t head_dim) {
  const bool is_rotated = source.name.find(".self_attn.q_proj.") != std::string::npos ||
                          source.name.find(".self_attn.k_proj.") != std::string::npos;
  if (!pairs_neighbours || !is_rotated) return source.fill;
  return [fill = source.fill, rows = source.shape[0], head_dim](std::span<std::byte> bytes) {
    fill(bytes);
    pair_neighbours(bytes, rows, head_dim);
  };
}

/// Returns a function that fills the bytes of several sources, one after the other.
std::function<void(std::span<std::byte>)> joined_fill(
    std::vector<std::function<void(std::span<std::byte>)>> parts, GgufType type,
    std::uint64_t elements) {
  return [parts = std::move(parts), type, elements](std::span<std::byte> bytes) {
    const std::size_t size = bytes.size() / parts.size();
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const auto part = bytes.subspan(i * size, size);
      if (type != GgufType::q8_0) {
        parts[i](part);
        continue;
      }
      std::vector<float> values(elements);
      parts[i](std::as_writable_bytes(std::span(values)));
      quantize_q8_0(values, part);
    }
  };
}

}  // namespace

const GgufArchitecture& gguf_architecture(const model::ModelConfig& config,
                                          const std::string& where) {
  std::vector<std::string> fewest;
  for (const GgufArchitecture& architecture : architectures()) {
    std::vector<std::string> found = differences(config, architecture);
    if (found.empty()) return architecture;
    if (fewest.empty() || found.size() < fewest.size()) fewest = std::move(found);
  }
  fail(
      ErrorKind::usage,
      "{}: --format gguf: llama.cpp computes no model with {}. The architectures are {}; export with "
      "--format hf instead",
      where, joined(fewest, ", "),
      joined(architectures(), ", ", [](const auto& row) { return row.name; }));
}

void put_gguf_shape(const model::ModelConfig& config, const GgufArchitecture& architecture,
                    GgufValues& values) {
  const auto number = [&](std::string_view key, std::int64_t value) {
    values.number(formatted("{}.{}", architecture.name, key), static_cast<std::uint32_t>(value));
  };
  const auto real = [&](std::string_view key, double value) {
    values.real(formatted("{}.{}", architecture.name, key), value);
  };
  number("vocab_size", config.vocab_size);
  number("context_length", config.max_seq_len);
  number("embedding_length", config.hidden_size);
  number("block_count", config.num_layers);
  number("feed_forward_length", config.moe.on() && !architecture.needs_experts
                                    ? config.moe.moe_intermediate_size
                                    : config.intermediate_size);
  number("attention.head_count", config.num_heads);
  number("attention.head_count_kv", config.num_kv_heads);
  number("attention.key_length", config.head_dim);
  number("attention.value_length", config.head_dim);
  real("attention.layer_norm_rms_epsilon", config.norm_eps);
  number("rope.dimension_count", config.head_dim);
  real("rope.freq_base", config.rope_theta);
  if (config.sliding_window > 0) number("attention.sliding_window", config.sliding_window);
  if (config.moe.on()) {
    number("expert_count", config.moe.num_experts);
    number("expert_used_count", config.moe.num_experts_per_tok);
    if (architecture.needs_experts)
      number("expert_feed_forward_length", config.moe.moe_intermediate_size);
  }
  const model::RopeScaling scaling = model::parse_rope_scaling(config.rope_scaling);
  if (scaling.kind == model::RopeScaling::Kind::linear) {
    values.text(formatted("{}.rope.scaling.type", architecture.name), "linear");
    real("rope.scaling.factor", scaling.factor);
  }
}

std::vector<GgufTensor> gguf_tensors(
    const model::ModelConfig& config, const GgufArchitecture& architecture, GgufType type,
    const std::function<std::vector<SafetensorsSource>(DType)>& weights) {
  std::vector<GgufTensor> tensors;
  const model::RopeScaling scaling = model::parse_rope_scaling(config.rope_scaling);
  if (scaling.kind == model::RopeScaling::Kind::llama3) {
    const std::vector<float> factors = frequency_factors(config, scaling);
    tensors.push_back({"rope_freqs.weight",
                       GgufType::f32,
                       {static_cast<std::int64_t>(factors.size())},
                       [factors](std::span<std::byte> bytes) {
                         std::ranges::copy(std::as_bytes(std::span(factors)), bytes.begin());
                       }});
  }
  std::map<DType, std::vector<SafetensorsSource>> sources;
  const auto sources_in = [&](DType dtype) -> const std::vector<SafetensorsSource>& {
    if (!sources.contains(dtype)) sources[dtype] = weights(dtype);
    return sources[dtype];
  };

  struct Entry {
    GgufTensor tensor;
    std::vector<std::function<void(std::span<std::byte>)>> parts;
    std::uint64_t elements = 0;  // number of elements of one part
  };

  std::vector<Entry> entries;
  std::map<std::string, std::size_t> entry_of;
  const std::size_t count = sources_in(DType::f32).size();
  for (std::size_t i = 0; i < count; ++i) {
    const SafetensorsSource& shape_source = sources_in(DType::f32)[i];
    const GgufType own_type = tensor_type(type, shape_source);
    const SafetensorsSource& source = sources_in(source_dtype(own_type))[i];
    const std::string name = file_name(source.name);
    const auto [found, is_new] = entry_of.try_emplace(name, entries.size());
    if (is_new) {
      Entry& entry = entries.emplace_back();
      entry.tensor = {name, own_type, source.shape, {}};
      entry.elements = 1;
      for (const std::int64_t size : source.shape)
        entry.elements *= static_cast<std::uint64_t>(size);
    }
    entries[found->second].parts.push_back(
        source_fill(source, architecture.pairs_neighbours, config.head_dim));
  }
  for (Entry& entry : entries) {
    if (entry.tensor.name.find("_exps.") != std::string::npos)
      entry.tensor.shape.insert(entry.tensor.shape.begin(),
                                static_cast<std::int64_t>(entry.parts.size()));
    entry.tensor.fill = joined_fill(std::move(entry.parts), entry.tensor.type, entry.elements);
    tensors.push_back(std::move(entry.tensor));
  }
  return tensors;
}

}  // namespace trireme::checkpoint
