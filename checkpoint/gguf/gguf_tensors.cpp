#include "checkpoint/gguf/gguf_tensors.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "checkpoint/exchange/rotary_rows.hpp"
#include "core/error.hpp"

namespace trireme::checkpoint {
namespace {

using FillBytes = std::function<void(std::span<std::byte>)>;

struct GgufName {
  std::string_view ours;
  std::string_view file;
};

constexpr std::array<GgufName, 5> kWholeNames{
    {{"model.embed_tokens.weight", "token_embd.weight"},
     {"model.embed_positions.weight", "position_embd.weight"},
     {"model.norm.weight", "output_norm.weight"},
     {"model.norm.bias", "output_norm.bias"},
     {"lm_head.weight", "output.weight"}}};

/// Names of modules in a block. Names of norms of Gemma and OLMo 2 differ from their names in
/// Hugging Face.
constexpr std::array<GgufName, 17> kBlockNames{{{"input_layernorm", "attn_norm"},
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

std::string_view file_module(std::string_view ours, const GgufArchitecture& architecture) {
  for (const GgufFused& fused : architecture.fused)
    if (std::ranges::find(fused.parts, ours) != fused.parts.end()) return fused.file;
  const auto* found = std::ranges::find(kBlockNames, ours, &GgufName::ours);
  if (found == kBlockNames.end()) fail(ErrorKind::internal, "no GGUF name for {}", ours);
  return found->file;
}

/// Returns the name in the file. All experts of a layer have the same name, and all parts of a
/// fused tensor.
std::string gguf_name(std::string_view ours, const GgufArchitecture& architecture) {
  const auto* whole = std::ranges::find(kWholeNames, ours, &GgufName::ours);
  if (whole != kWholeNames.end()) return std::string(whole->file);
  constexpr std::string_view kBlock = "model.layers.";
  constexpr std::string_view kExpert = "mlp.experts.";
  TRIREME_ASSERT(ours.starts_with(kBlock));
  ours.remove_prefix(kBlock.size());
  const std::size_t dot = ours.find('.');
  const std::size_t end = ours.rfind('.');
  std::string_view module = ours.substr(dot + 1, end - dot - 1);
  if (module.starts_with(kExpert)) module = module.substr(module.find('.', kExpert.size()) + 1);
  return formatted("blk.{}.{}{}", ours.substr(0, dot), file_module(module, architecture),
                   ours.substr(end));
}

/// Returns the row in the file of a row of queries or keys.
std::int64_t gguf_row(std::int64_t row, const model::ModelConfig& config, bool pairs_neighbours) {
  const std::int64_t dim = config.head_dim;
  if (!pairs_neighbours) return partial_rotary_row(row, dim, config.rotated_dim());
  const std::int64_t in_head = row % dim;
  const std::int64_t half = dim / 2;
  return row - in_head + in_head % half * 2 + in_head / half;
}

/// Returns a function that fills the bytes of one source, in the order of rows of the file.
FillBytes ordered_fill(const SafetensorsSource& source, const model::ModelConfig& config,
                       bool pairs_neighbours) {
  const bool is_rotated = source.name.find(".self_attn.q_proj.") != std::string::npos ||
                          source.name.find(".self_attn.k_proj.") != std::string::npos;
  const bool is_ordered = !pairs_neighbours && config.rotated_dim() == config.head_dim;
  if (!is_rotated || is_ordered) return source.fill;
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < source.shape[0]; ++row)
    rows.push_back(gguf_row(row, config, pairs_neighbours));
  return [fill = source.fill, rows = std::move(rows)](std::span<std::byte> bytes) {
    std::vector<std::byte> own(bytes.size());
    fill(own);
    const std::size_t size = own.size() / rows.size();
    for (std::size_t row = 0; row < rows.size(); ++row)
      std::ranges::copy(std::span(own).subspan(row * size, size),
                        bytes.subspan(static_cast<std::size_t>(rows[row]) * size).begin());
  };
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
  const bool is_exact =
      source.name.ends_with(".mlp.gate.weight") || source.name.ends_with(".embed_positions.weight");
  if (source.shape.size() < 2 || is_exact) return GgufType::f32;
  const bool has_blocks = source.shape.back() % static_cast<std::int64_t>(kBlockElements) == 0;
  return wanted == GgufType::q8_0 && !has_blocks ? GgufType::f16 : wanted;
}

/// A source of a tensor of the file.
struct TensorPart {
  FillBytes fill;
  std::uint64_t elements = 0;
};

/// Returns a function that fills the bytes of several sources, one after the other.
FillBytes joined_fill(std::vector<TensorPart> parts, GgufType type) {
  return [parts = std::move(parts), type](std::span<std::byte> bytes) {
    for (const auto& [fill, elements] : parts) {
      const auto own = bytes.first(gguf_bytes(type, elements));
      bytes = bytes.subspan(own.size());
      if (type != GgufType::q8_0) {
        fill(own);
        continue;
      }
      std::vector<float> values(elements);
      fill(std::as_writable_bytes(std::span(values)));
      quantize_q8_0(values, own);
    }
  };
}

GgufTensor factors_tensor(const char* name, const std::vector<double>& factors) {
  const std::vector<float> values(factors.begin(), factors.end());
  return {name, GgufType::f32, {std::ssize(values)}, [values](std::span<std::byte> bytes) {
            std::ranges::copy(std::as_bytes(std::span(values)), bytes.begin());
          }};
}

/// Returns the divisors of the rotary frequencies, which have no keys.
std::vector<GgufTensor> rope_tensors(const model::ModelConfig& config) {
  const model::RopeScaling scaling = model::parse_rope_scaling(config.rope_scaling);
  if (scaling.kind == model::RopeScaling::Kind::longrope)
    return {factors_tensor("rope_factors_long.weight", scaling.long_factor),
            factors_tensor("rope_factors_short.weight", scaling.short_factor)};
  if (scaling.kind != model::RopeScaling::Kind::llama3) return {};
  const auto plain = model::rope_frequencies(config.head_dim, config.rope_theta, {});
  const auto scaled = model::rope_frequencies(config.head_dim, config.rope_theta, scaling);
  std::vector<double> factors;
  for (std::size_t i = 0; i < plain.size(); ++i) factors.push_back(plain[i] / scaled[i]);
  return {factors_tensor("rope_freqs.weight", factors)};
}

}  // namespace

std::vector<GgufTensor> gguf_tensors(
    const model::ModelConfig& config, const GgufArchitecture& architecture, GgufType type,
    const std::function<std::vector<SafetensorsSource>(DType)>& weights) {
  std::map<DType, std::vector<SafetensorsSource>> sources;
  const auto sources_in = [&](DType dtype) -> const std::vector<SafetensorsSource>& {
    if (!sources.contains(dtype)) sources[dtype] = weights(dtype);
    return sources[dtype];
  };

  struct Entry {
    GgufTensor tensor;
    std::int64_t rows = 0;  // sum over all parts
    std::vector<TensorPart> parts;
  };

  std::vector<Entry> entries;
  std::map<std::string, std::size_t> entry_of;
  const std::size_t count = sources_in(DType::f32).size();
  for (std::size_t i = 0; i < count; ++i) {
    const SafetensorsSource& shape_source = sources_in(DType::f32)[i];
    const GgufType own_type = tensor_type(type, shape_source);
    const SafetensorsSource& source = sources_in(source_dtype(own_type))[i];
    const std::string name = gguf_name(source.name, architecture);
    const auto [found, is_new] = entry_of.try_emplace(name, entries.size());
    if (is_new) entries.push_back({{name, own_type, source.shape, {}}, 0, {}});
    Entry& entry = entries[found->second];
    std::uint64_t elements = 1;
    for (const std::int64_t size : source.shape) elements *= static_cast<std::uint64_t>(size);
    entry.rows += source.shape.front();
    entry.parts.push_back({ordered_fill(source, config, architecture.pairs_neighbours), elements});
  }
  std::vector<GgufTensor> tensors = rope_tensors(config);
  for (Entry& entry : entries) {
    std::vector<std::int64_t>& shape = entry.tensor.shape;
    if (entry.tensor.name.find("_exps.") != std::string::npos)
      shape.insert(shape.begin(), std::ssize(entry.parts));
    else
      shape.front() = entry.rows;
    entry.tensor.fill = joined_fill(std::move(entry.parts), entry.tensor.type);
    tensors.push_back(std::move(entry.tensor));
  }
  return tensors;
}

}  // namespace trireme::checkpoint
