#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.hpp"
#include "model/rope_scaling.hpp"

/// The architectures of llama.cpp as data: the options of a model that each one computes, and what
/// its files have. Sources: github.com/ggml-org/llama.cpp (src/models/*.cpp and
/// src/llama-model.cpp: keys, tensors and graphs; conversion/*.py: names and order of rows), and the
/// PyPI package gguf 0.19 (constants.py).
namespace trireme::checkpoint {

/// An option of the model that an architecture reads or needs.
struct GgufOption {
  std::string_view key;                    // without "model."
  std::vector<std::string_view> values{};  // allowed values; empty: all
};

/// Modules of a block with rows that one tensor of the file stacks.
struct GgufFused {
  std::string_view file;
  std::vector<std::string_view> parts;
};

struct GgufArchitecture {
  std::string_view name;
  /// All other options must have their default, except those that every architecture computes.
  std::vector<GgufOption> options;
  std::vector<GgufFused> fused{};
  /// The kinds of rope_scaling besides none and linear.
  std::vector<model::RopeScaling::Kind> scalings{};
  bool experts = false;  // can be a mixture of experts
  bool needs_experts = false;
  bool pairs_neighbours = false;  // rotates elements 2i and 2i + 1, not i and i + head_dim / 2
  bool square = false;            // heads have the width of the model together
  bool scaled_embedding = false;  // multiplies the embedding by the root of hidden_size
  bool softcaps = false;          // has soft-caps of attention scores and logits, which are not 0
  /// Number of layers for which llama.cpp divides attention scores by the root of hidden_size /
  /// num_heads (the largest Gemma models), and not of head_dim. 0: attention_scale_dim is not read.
  std::int64_t wide_scale_layers = 0;
  /// Every such layer has no window, all others have one. 0: llama.cpp applies no window in its files.
  std::int64_t window_period = 0;
  std::int64_t no_rope_period = 0;  // every such layer has no rotary embedding
  bool window_key = false;          // the file has the window even if llama.cpp does not read it
};

std::span<const GgufArchitecture> gguf_architectures();

/// Returns the architecture that computes the same as the model. If several do, an architecture
/// with the name `preferred` comes first, for example the family in Hugging Face. Throws
/// Error(usage), beginning with `where`, that names the options that no architecture computes.
const GgufArchitecture& gguf_architecture(const model::ModelConfig& config,
                                          std::string_view preferred, const std::string& where);

/// Returns true if the architecture reads the option.
bool has_gguf_option(const GgufArchitecture& architecture, std::string_view key);

/// Returns the longest text for which llama.cpp computes the same as the model. An architecture
/// without windows computes the same up to the length of the window.
std::int64_t gguf_context_length(const model::ModelConfig& config,
                                 const GgufArchitecture& architecture);

/// Returns sentences for the user about small or conditional differences.
std::vector<std::string> gguf_notes(const model::ModelConfig& config,
                                    const GgufArchitecture& architecture);

}  // namespace trireme::checkpoint
