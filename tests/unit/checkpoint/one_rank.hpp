#pragma once
#include "checkpoint/exchange/safetensors.hpp"
#include "checkpoint/hf/hf_export.hpp"
#include "checkpoint/maintenance/commands.hpp"
#include "checkpoint/maintenance/reshard.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "comm/self/self_communicator.hpp"

/// Each function runs the operation of the same name, which several ranks do together, on one rank.
namespace trireme::test {

inline std::string hash_alone(const checkpoint::Checkpoint& checkpoint) {
  comm::SelfCommunicator alone;
  return trireme::checkpoint::hash_tensors(checkpoint, alone);
}

inline std::string checkpoint_hash_alone(const std::filesystem::path& place,
                                         bool allow_older = false) {
  comm::SelfCommunicator alone;
  return trireme::checkpoint::checkpoint_hash(place, alone, allow_older);
}

inline std::string verify_alone(const std::filesystem::path& place) {
  comm::SelfCommunicator alone;
  return trireme::checkpoint::checkpoint_verify(place, alone);
}

inline std::filesystem::path reshard_alone(const checkpoint::Checkpoint& from,
                                           const checkpoint::ReshardLayout& layout,
                                           const std::filesystem::path& folder) {
  comm::SelfCommunicator alone;
  return trireme::checkpoint::reshard_checkpoint(from, layout, folder, alone);
}

inline std::string export_command_alone(const checkpoint::ExportCommand& options) {
  comm::SelfCommunicator alone;
  return trireme::checkpoint::export_command(options, alone);
}

inline void export_hf_alone(const checkpoint::Checkpoint& checkpoint,
                            const std::filesystem::path& folder,
                            const checkpoint::ExportOptions& options = {}) {
  comm::SelfCommunicator alone;
  trireme::checkpoint::export_hf(checkpoint, folder, alone, options);
}

inline void write_safetensors_alone(const std::filesystem::path& path,
                                    std::span<const checkpoint::SafetensorsSource> tensors) {
  comm::SelfCommunicator alone;
  trireme::checkpoint::write_safetensors(path, tensors, alone);
}

}  // namespace trireme::test
