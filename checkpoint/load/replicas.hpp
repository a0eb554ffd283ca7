#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/format/manifest.hpp"
#include "checkpoint/format/state.hpp"
#include "comm/communicator.hpp"

namespace trireme::checkpoint {

/// Loads elements that several ranks need. The owner reads them and sends them to the other ranks,
/// so that each byte of a checkpoint is read once for all replicas. If no rank owns an element,
/// every rank that needs it reads it.
class Replicas {
 public:
  /// Every tensor of `into` must be in the manifest with its dtype and shape. `into` must outlive
  /// this object. Collective.
  Replicas(const CheckpointManifest& manifest, StateDict& into, comm::Communicator& world);

  /// Returns the tensors that this rank reads from disk.
  [[nodiscard]] StateDict to_read() const;

  /// Sends and receives replicas after all ranks have read. Collective.
  void exchange();

 private:
  /// Runs of elements that are copied between a tensor of this rank and a message.
  struct Transfer {
    int peer = 0;
    std::size_t tensor = 0;
    std::vector<parallel::SliceRun> runs;
  };

  StateDict& into_;
  comm::Communicator& world_;
  std::vector<Transfer> sends_;  // for each peer in the order of its message
  std::vector<Transfer> receives_;
  std::vector<bool> received_;  // [tensors]
};

}  // namespace trireme::checkpoint
