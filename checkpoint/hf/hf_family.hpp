#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "checkpoint/hf/hf_reader.hpp"
#include "model/config.hpp"

/// The model families of Hugging Face directories as data. A family describes names, keys and
/// defaults of its files over the options that every model has (model/config.hpp).
/// Source: transformers 5.23 and 4.57, configuration_*.py and modeling_*.py.
namespace trireme::checkpoint {

/// A linear of the file that stacks the rows of several linears of a block.
struct FusedLinear {
  std::string_view file;
  std::vector<std::string_view> parts;
};

/// A part of a tensor name that differs between a checkpoint and the file.
struct RenamedPart {
  std::string_view ours;
  std::string_view file;
};

struct Family {
  std::string_view model_type;
  std::string_view architecture;

  /// Values that transformers assumes for keys that config.json does not set.
  struct Defaults {
    std::int64_t num_kv_heads = 0;  // 0: as many as query heads
    std::int64_t head_dim = 0;      // 0: width / heads
    std::int64_t max_positions = 32768;
    double rope_theta = 10000.0;
    double norm_eps = 1e-6;
    bool tie_embeddings = false;
    std::string_view activation = "silu";  // its name in transformers
    std::int64_t original_max = 0;         // original_max_position_embeddings; 0: the maximum
    std::int64_t width_factor = 0;         // MLP width / model width; 0: the key must be there
    double rotary_share = 1;               // rotated part of each head
  } defaults;

  std::string_view activation_key = "hidden_act";
  /// Keys that change the computation and that `read` understands. All other such keys must be off.
  std::vector<std::string_view> keys;
  /// Other names of keys that all families have. `ours` is the name in Llama.
  std::vector<RenamedPart> renamed_keys{};
  std::vector<FusedLinear> fused{};
  std::vector<RenamedPart> renamed{};
  std::vector<std::string_view> ignored{};  // ends of names of tensors that hold no weights
  std::string_view optional_prefix{};       // some files leave it out of names
  bool transposed = false;                  // matrices of blocks are stored as [in, out]
  bool interleaved_qkv = false;     // rows of qkv: q, k, v of head 0, q, k, v of head 1, ...
  double norm_offset = 0;           // the file stores the weights of norms minus this number
  bool partial_rotary = false;      // partial_rotary_factor is supported
  bool rope_by_layer_type = false;  // rope_parameters has an object for each type of layer
  /// Reads the keys of this family into options that all families have; sizes and rotary
  /// frequencies are read before.
  void (*read)(const Json& config, HfReader& reader, model::ModelConfig& model);
  /// Writes the keys that `read` reads, and changes keys that all families have.
  void (*write)(const model::ModelConfig& model, Json& config);

  /// Returns the name in the file of a key that all families have.
  [[nodiscard]] std::string key(std::string_view ours) const;
};

const Family& qwen2_family();
const Family& qwen3_family();
const Family& qwen3_moe_family();
const Family& llama_family();
const Family& smollm3_family();
const Family& mistral_family();
const Family& mixtral_family();
const Family& phi3_family();
const Family& gemma_family();
const Family& gemma2_family();
const Family& gemma3_family();
const Family& olmo2_family();
const Family& gpt2_family();
const Family& gpt_neox_family();
const Family& starcoder2_family();
const Family& stablelm_family();

/// Returns all families. If several families fit a model, the first one is the default.
std::span<const Family* const> hf_families();
/// Returns the model_type of all families: "qwen3, qwen3_moe, ...".
std::string hf_family_names();
/// Returns the family with that model_type; null if there is none.
const Family* find_family(std::string_view model_type);

// Keys that several families share.

/// Reads attention_bias: of queries, keys, values and the output.
void read_attention_bias(HfReader& reader, model::ModelConfig& model);
/// Reads layer_types; without this key, `has_window` decides for each layer. `window` is the number
/// of keys that a query sees; 0: there is no window.
void read_layer_windows(const Json& config, HfReader& reader, std::int64_t window,
                        const std::vector<bool>& has_window, model::ModelConfig& model);
/// Removes a window that covers all positions, because it has no effect.
void drop_idle_window(model::ModelConfig& model);
/// Writes sliding_window; null without a window.
void put_window(const model::ModelConfig& model, Json& config);
/// Writes layer_types.
void put_layer_types(const model::ModelConfig& model, Json& config);

/// Returns the factor between the two definitions of router_aux_loss_coef: transformers computes
/// one loss, the mean over all layers with experts; in Trireme, each of these layers has its own
/// loss.
double layers_with_aux_loss(const model::ModelConfig& model);
/// Reads num_experts or num_local_experts, num_experts_per_tok and router_aux_loss_coef.
void read_router(const Json& config, HfReader& reader, std::int64_t num_experts,
                 std::int64_t num_experts_per_tok, model::ModelConfig& model);

}  // namespace trireme::checkpoint
