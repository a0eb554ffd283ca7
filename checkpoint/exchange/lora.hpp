#pragma once
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/exchange/hf_tensors.hpp"
#include "checkpoint/load/load.hpp"
#include "core/dtype.hpp"
#include "core/error.hpp"
#include "model/config.hpp"
#include "model/lora/lora_config.hpp"

/// Checkpoints of low-rank adapters: "param/<module>.lora_A.weight" [rank, in] and ".lora_B.weight"
/// [out, rank] for the targeted linears of every block, and values "lora.*". The base weights are
/// in another checkpoint. Source: see LoraConfig.
namespace trireme::checkpoint {

/// One adapted matrix with weight [out, in].
struct LoraAdapter {
  std::string module;  // "model.layers.0.self_attn.q_proj"
  std::int64_t in = 0;
  std::int64_t out = 0;
};

[[nodiscard]] bool holds_adapters(const Checkpoint& checkpoint);

/// Returns the path of the base checkpoint: "base" in the run directory.
std::filesystem::path base_checkpoint_path(const Checkpoint& adapters);

/// Reads the values "lora.*".
model::LoraConfig lora_of(const Checkpoint& checkpoint);

/// Returns all adapters of a configuration, block by block.
std::vector<LoraAdapter> lora_adapters(const model::LoraConfig& lora,
                                       const model::ModelConfig& model);

/// Returns the names and shapes of the tensors of adapters with this rank.
std::vector<NamedShape> adapter_tensors(const std::vector<LoraAdapter>& adapters,
                                        std::int64_t rank);

/// Returns one line for every tensor in `tensors` (by name, with `shape` and `dtype`) that has the
/// name prefix `prefix` and differs from `expected` (names without prefix); "" if all match.
/// Messages show `shown` before each name.
template <class Tensors>
std::string tensor_problems(const Tensors& tensors, const std::vector<NamedShape>& expected,
                            std::string_view prefix, std::string_view shown = "") {
  std::string problems;
  std::set<std::string> known;
  for (const NamedShape& tensor : expected) {
    const std::string name = cat(prefix, tensor.name);
    known.insert(name);
    const auto found = tensors.find(name);
    if (found == tensors.end()) {
      problems += formatted("\n  missing: {}{}", shown, name);
    } else if (found->second.shape != tensor.shape || !is_float(found->second.dtype)) {
      problems += formatted("\n  {}{}: wrong shape or dtype", shown, name);
    }
  }
  for (const auto& [name, tensor] : tensors) {
    if (name.starts_with(prefix) && !known.contains(name))
      problems += formatted("\n  extra: {}{}", shown, name);
  }
  return problems;
}

/// Throws Error(data) naming every adapter tensor of the checkpoint that is missing or has a wrong
/// shape, and every parameter that is not an adapter.
void check_adapters(const Checkpoint& checkpoint, const std::vector<LoraAdapter>& adapters,
                    std::int64_t rank);

/// Returns W + scale B A, shape [out, in], computed in fp64.
std::vector<double> merged_weight(const Checkpoint& adapters, const Checkpoint& base,
                                  const LoraAdapter& adapter, const model::LoraConfig& lora);

}  // namespace trireme::checkpoint
