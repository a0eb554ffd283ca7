#pragma once
#include "checkpoint/exchange/safetensors.hpp"
#include "checkpoint/hf/hf_export.hpp"
#include "checkpoint/upkeep/commands.hpp"
#include "checkpoint/upkeep/reshard.hpp"
#include "checkpoint/upkeep/verify.hpp"
#include "comm/self/self_communicator.hpp"

/// Runs an operation of several ranks on one rank.
namespace trireme::test {

inline std::string hash_tensors(const Checkpoint& checkpoint) {
  SelfCommunicator alone;
  return trireme::hash_tensors(checkpoint, alone);
}

inline std::string checkpoint_hash(const std::filesystem::path& place, bool allow_older = false) {
  SelfCommunicator alone;
  return trireme::checkpoint_hash(place, alone, allow_older);
}

inline std::string checkpoint_verify(const std::filesystem::path& place) {
  SelfCommunicator alone;
  return trireme::checkpoint_verify(place, alone);
}

inline std::filesystem::path reshard_checkpoint(const Checkpoint& from, const ReshardLayout& layout,
                                                const std::filesystem::path& folder) {
  SelfCommunicator alone;
  return trireme::reshard_checkpoint(from, layout, folder, alone);
}

inline std::string export_command(const ExportCommand& options) {
  SelfCommunicator alone;
  return trireme::export_command(options, alone);
}

inline void export_hf(const Checkpoint& checkpoint, const std::filesystem::path& folder,
                      const ExportOptions& options = {}) {
  SelfCommunicator alone;
  trireme::export_hf(checkpoint, folder, alone, options);
}

inline void write_safetensors(const std::filesystem::path& path,
                              std::span<const SafetensorsSource> tensors) {
  SelfCommunicator alone;
  trireme::write_safetensors(path, tensors, alone);
}

}  // namespace trireme::test
