#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "checkpoint/format/manifest.hpp"
#include "checkpoint/format/state.hpp"
#include "comm/communicator.hpp"

namespace trireme {

/// Elements that several ranks want: the owner reads them and sends them to the others, so that a
/// byte of a checkpoint is read once for all replicas. What no owner among the ranks holds is read
/// by whoever wants it. Messages of each rank: to the ranks that hold copies of what it owns.
class Replicas {
 public:
  /// Collective. Every tensor of `into` is in the manifest, with its dtype and shape; it outlives
  /// this.
  Replicas(const CheckpointManifest& manifest, StateDict& into, Communicator& world);

  /// What this rank reads itself.
  [[nodiscard]] StateDict to_read() const;

  /// Collective, when all have read.
  void exchange();

 private:
  /// Runs of elements between a tensor of this rank and a message.
  struct Transfer {
    int peer = 0;
    std::size_t tensor = 0;
    std::vector<SliceRun> runs;
  };

  StateDict& into_;
  Communicator& world_;
  std::vector<Transfer> sends_;  // of one peer in the order of the message
  std::vector<Transfer> receives_;
  std::vector<bool> received_;  // [tensors]
};

}  // namespace trireme
