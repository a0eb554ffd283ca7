#include "checkpoint/gguf/gguf_architecture.hpp"

#include <array>

namespace trireme::checkpoint {
namespace {

using ScalingKind = model::RopeScaling::Kind;

/// llama.cpp computes both by the approximation with tanh.
std::vector<std::string_view> any_gelu() {
  return {"gelu_tanh", "gelu"};
}

GgufFused fused_qkv() {
  return {"attn_qkv", {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}};
}

std::vector<GgufArchitecture> qwen_rows() {
  return {{.name = "qwen3", .options = {{"qk_norm", {"true"}}}},
          {.name = "qwen3moe",
           .options = {{"qk_norm", {"true"}}},
           .experts = true,
           .needs_experts = true},
          {.name = "qwen2", .options = {{"qk_norm", {"false"}}, {"qkv_bias", {"true"}}}}};
}

/// Llama, also with experts (Mixtral), and families that differ from it by a few options.
std::vector<GgufArchitecture> llama_rows() {
  return {
      {.name = "llama",
       .options = {{"qk_norm", {"false"}}, {"qkv_bias"}, {"attention_output_bias"}, {"mlp_bias"}},
       .scalings = {ScalingKind::llama3},
       .experts = true,
       .pairs_neighbours = true},
      {.name = "smollm3",
       .options = {{"qk_norm", {"false"}}, {"no_rope_layers"}},
       .pairs_neighbours = true,
       .no_rope_period = 4},
      {.name = "phi3",
       .options = {{"qk_norm", {"false"}}, {"rotary_dim"}},
       .fused = {fused_qkv(), {"ffn_up", {"mlp.gate_proj", "mlp.up_proj"}}},
       .scalings = {ScalingKind::longrope},
       .square = true,
       .window_key = true},
      {.name = "olmo2",
       .options = {{"qk_norm", {"true"}},
                   {"qk_norm_whole", {"true"}},
                   {"pre_norms", {"false"}},
                   {"post_norms", {"true"}},
                   {"tie_embeddings", {"false"}}},
       .square = true}};
}

std::vector<GgufArchitecture> gemma_rows() {
  return {{.name = "gemma",
           .options = {{"qk_norm", {"false"}},
                       {"activation", {"gelu_tanh"}},
                       {"embedding_scale"},
                       {"tie_embeddings", {"true"}}},
           .scaled_embedding = true},
          {.name = "gemma2",
           .options = {{"qk_norm", {"false"}},
                       {"post_norms", {"true"}},
                       {"activation", {"gelu_tanh"}},
                       {"embedding_scale"},
                       {"attention_softcap"},
                       {"logit_softcap"},
                       {"attention_scale_dim"},
                       {"full_attention_layers"},
                       {"tie_embeddings", {"true"}}},
           .scaled_embedding = true,
           .softcaps = true,
           .wide_scale_layers = 46,
           .window_period = 2},
          {.name = "gemma3",
           .options = {{"qk_norm", {"true"}},
                       {"post_norms", {"true"}},
                       {"activation", {"gelu_tanh"}},
                       {"embedding_scale"},
                       {"attention_scale_dim"},
                       {"full_attention_layers"},
                       {"local_rope_theta", {"10000"}}},
           .scaled_embedding = true,
           .wide_scale_layers = 62,
           .window_period = 6}};
}

/// Families with LayerNorm.
std::vector<GgufArchitecture> layer_norm_rows() {
  const auto with_plain_mlp = [](std::vector<GgufOption> more) {
    more.insert(more.end(), {{"qk_norm", {"false"}},
                             {"norm", {"layer"}},
                             {"mlp", {"plain"}},
                             {"activation", any_gelu()},
                             {"qkv_bias", {"true"}},
                             {"attention_output_bias", {"true"}},
                             {"mlp_bias", {"true"}}});
    return more;
  };
  return {{.name = "gpt2",
           .options = with_plain_mlp({{"position", {"learned"}}, {"sliding_window", {"0"}}}),
           .fused = {fused_qkv()},
           .square = true},
          {.name = "gptneox",
           .options = with_plain_mlp(
               {{"rotary_dim"}, {"parallel_residual"}, {"tie_embeddings", {"false"}}}),
           .fused = {fused_qkv()},
           .square = true},
          {.name = "starcoder2", .options = with_plain_mlp({}), .square = true},
          {.name = "stablelm",
           .options = {{"qk_norm", {"false"}},
                       {"norm", {"layer"}},
                       {"rotary_dim"},
                       {"qkv_bias"},
                       {"tie_embeddings", {"false"}}},
           .square = true}};
}

}  // namespace

std::span<const GgufArchitecture> gguf_architectures() {
  static const std::vector<GgufArchitecture> rows = [] {
    std::vector<GgufArchitecture> all;
    for (const auto& part : {qwen_rows(), llama_rows(), gemma_rows(), layer_norm_rows()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return rows;
}

}  // namespace trireme::checkpoint
