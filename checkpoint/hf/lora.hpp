#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/load/load.hpp"
#include "model/config.hpp"
#include "model/lora_config.hpp"

/// Checkpoints of low-rank adapters: "param/<module>.lora_A.weight" [rank, in] and ".lora_B.weight"
/// [out, rank] for the targeted linears of every block, and values "lora.*". The weights themselves
/// are another checkpoint's, the base. Source: see LoraConfig.
namespace trireme {

/// One adapted matrix: weight [out, in].
struct LoraAdapter {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  std::int64_t in = 0;
  std::int64_t out = 0;
};

[[nodiscard]] bool holds_adapters(const Checkpoint& checkpoint);

/// Where a checkpoint of adapters has its base: "base" in the folder of its run.
std::filesystem::path base_place(const Checkpoint& adapters);

/// Its values "lora.*".
LoraConfig lora_of(const Checkpoint& checkpoint);

/// All that a configuration has, block by block.
std::vector<LoraAdapter> lora_adapters(const LoraConfig& lora, const ModelConfig& model);

/// Throws Error(data) naming every tensor of the checkpoint's adapters that is missing or of another
/// shape, and every parameter that is none of them.
void check_adapters(const Checkpoint& checkpoint, const std::vector<LoraAdapter>& adapters,
                    std::int64_t rank);

/// W + scale B A, [out, in], every sum in fp64.
std::vector<double> merged_weight(const Checkpoint& adapters, const Checkpoint& base,
                                  const LoraAdapter& adapter, const LoraConfig& lora);

}  // namespace trireme
