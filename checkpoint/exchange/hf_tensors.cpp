#include "checkpoint/exchange/hf_tensors.hpp"

#include "core/error.hpp"
#include "model/residual_terms.hpp"
#include "parallel/slice.hpp"

namespace trireme::checkpoint {
namespace {

constexpr const char* kGateUpStack = "mlp.experts.gate_up_proj";
constexpr const char* kDownStack = "mlp.experts.down_proj";

void add_residual_scalars(const model::ModelConfig& config, std::int64_t layer,
                          const std::string& prefix, std::vector<NamedShape>& tensors) {
  for (const model::ResidualTerm& term : model::residual_terms(config, layer)) {
    tensors.push_back({prefix + term.factor_name, {1}});
    if (term.scale_name != nullptr) tensors.push_back({prefix + term.scale_name, {1}});
  }
}

void add_block(const model::ModelConfig& config, std::int64_t layer,
               std::vector<NamedShape>& tensors) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t queries = config.num_heads * config.head_dim;
  const std::int64_t keys = config.num_kv_heads * config.head_dim;
  const std::string prefix = formatted("model.layers.{}.", layer);
  const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
    tensors.push_back({prefix + name, std::move(shape)});
  };
  const auto add_norm = [&](const std::string& module) {
    add((module + ".weight").c_str(), {hidden});
    if (config.layer_norm()) add((module + ".bias").c_str(), {hidden});
  };
  const auto add_mlp = [&](const std::string& module, std::int64_t width) {
    if (config.gated_mlp()) add((module + ".gate_proj.weight").c_str(), {width, hidden});
    add((module + ".up_proj.weight").c_str(), {width, hidden});
    add((module + ".down_proj.weight").c_str(), {hidden, width});
  };
  const bool gain = config.norm_gain;
  if (gain && config.pre_norms) add_norm("input_layernorm");
  add("self_attn.q_proj.weight", {queries, hidden});
  add("self_attn.k_proj.weight", {keys, hidden});
  add("self_attn.v_proj.weight", {keys, hidden});
  add("self_attn.o_proj.weight", {hidden, queries});
  const bool whole = config.qk_norm_whole;
  if (gain && config.qk_norm) add("self_attn.q_norm.weight", {whole ? queries : config.head_dim});
  if (gain && config.qk_norm) add("self_attn.k_norm.weight", {whole ? keys : config.head_dim});
  if (gain && config.pre_norms) add_norm("post_attention_layernorm");
  const model::MoeConfig& moe = config.moe;
  if (config.qkv_bias) {
    add("self_attn.q_proj.bias", {queries});
    add("self_attn.k_proj.bias", {keys});
    add("self_attn.v_proj.bias", {keys});
  }
  if (config.attention_output_bias) add("self_attn.o_proj.bias", {hidden});
  if (config.mlp_bias) {
    if (config.gated_mlp()) add("mlp.gate_proj.bias", {config.intermediate_size});
    add("mlp.up_proj.bias", {config.intermediate_size});
    add("mlp.down_proj.bias", {hidden});
  }
  if (gain && config.post_norms) {
    add_norm("attention_output_norm");
    add_norm("mlp_output_norm");
  }
  add_residual_scalars(config, layer, prefix, tensors);
  if (config.has_value_embedding(layer)) {
    add("self_attn.value_embed.weight", {config.num_kv_heads, config.vocab_size, config.head_dim});
    add("self_attn.value_gate.weight", {config.num_kv_heads, model::value_gate_inputs(config)});
  }
  if (config.mixes_first_values(layer)) add("self_attn.value_scalar", {1});
  if (!moe.in_layer(layer)) return add_mlp("mlp", config.intermediate_size);
  const std::int64_t width = moe.moe_intermediate_size;
  add("mlp.gate.weight", {moe.num_experts, hidden});
  if (moe.has_bias()) add("mlp.gate.e_score_correction_bias", {moe.num_experts});
  add(kGateUpStack, {moe.num_experts, 2, width, hidden});
  add(kDownStack, {moe.num_experts, hidden, width});
  if (moe.num_shared_experts > 0) add_mlp("mlp.shared_experts", moe.shared_width());
}

/// Appends gate, up and down of each expert of one layer.
void add_experts(const model::MoeConfig& moe, const NamedShape& gate_up, const NamedShape& down,
                 std::vector<HfTensor>& tensors) {
  const std::string module =
      gate_up.name.substr(0, gate_up.name.size() - std::string_view("gate_up_proj").size());
  const std::int64_t width = gate_up.shape[2];
  const std::int64_t hidden = gate_up.shape[3];
  const std::int64_t one = width * hidden;
  for (std::int64_t expert = 0; expert < moe.num_experts; ++expert) {
    const auto name = [&](const char* which) {
      return formatted("{}{}.{}.weight", module, expert, which);
    };
    tensors.push_back({name("gate_proj"), {width, hidden}, gate_up.name, 2 * expert * one});
    tensors.push_back({name("up_proj"), {width, hidden}, gate_up.name, (2 * expert + 1) * one});
    tensors.push_back({name("down_proj"), {hidden, width}, down.name, expert * one});
  }
}

}  // namespace

std::vector<NamedShape> model_tensors(const model::ModelConfig& config) {
  std::vector<NamedShape> tensors{
      {"model.embed_tokens.weight", {config.vocab_size, config.hidden_size}}};
  if (config.smear) {
    tensors.push_back({"model.smear_gate.weight", {model::smear_gate_inputs(config)}});
    tensors.push_back({"model.smear_scalar", {1}});
  }
  if (config.learned_positions())
    tensors.push_back({"model.embed_positions.weight", {config.max_seq_len, config.hidden_size}});
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer)
    add_block(config, layer, tensors);
  if (config.norm_gain) tensors.push_back({"model.norm.weight", {config.hidden_size}});
  if (config.layer_norm()) tensors.push_back({"model.norm.bias", {config.hidden_size}});
  add_residual_scalars(config, config.num_layers, "model.", tensors);
  if (!config.tie_embeddings)
    tensors.push_back({"lm_head.weight", {config.vocab_size, config.hidden_size}});
  return tensors;
}

std::vector<std::uint64_t> num_elements(const std::vector<NamedShape>& tensors) {
  std::vector<std::uint64_t> counts;
  for (const NamedShape& tensor : tensors)
    counts.push_back(static_cast<std::uint64_t>(parallel::Slice::whole(tensor.shape).count()));
  return counts;
}

std::vector<HfTensor> hf_tensors(const model::ModelConfig& config) {
  const std::vector<NamedShape> parameters = model_tensors(config);
  std::vector<HfTensor> tensors;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    if (parameters[i].name.ends_with(kGateUpStack)) {
      add_experts(config.moe, parameters[i], parameters[i + 1], tensors);
    } else if (!parameters[i].name.ends_with(kDownStack)) {
      tensors.push_back({parameters[i].name, parameters[i].shape, parameters[i].name});
    }
  }
  return tensors;
}

std::vector<std::int64_t> hf_stack_shape(const std::vector<std::int64_t>& shape) {
  if (shape.size() != 4) return shape;
  return {shape[0], shape[1] * shape[2], shape[3]};
}

}  // namespace trireme::checkpoint
