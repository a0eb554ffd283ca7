#pragma once
#include <cstdint>
#include <vector>

#include "comm/communicator.hpp"
#include "data/loader.hpp"
#include "parallel/mesh.hpp"

namespace trireme {

/// Targets of whole updates, over all data ranks: each counts its own share (DataLoader), and the
/// shares are added up while the update before is trained. All functions but the last are
/// collective.
class UpdateTargets {
 public:
  /// `world`: all ranks of the mesh, with host memory. Both must outlive this.
  UpdateTargets(DataLoader& loader, Communicator& world, const Mesh& mesh);
  UpdateTargets(const UpdateTargets&) = delete;
  UpdateTargets& operator=(const UpdateTargets&) = delete;

  /// The next update, whose batches on this rank these are: fills their update_targets and returns
  /// it. Throws Error(data) if they do not hold as many targets as the share that was counted.
  std::int64_t of(std::vector<Batch>& batches);

  /// Begins to add up the shares of the update after the one that `of` was last asked for. May be
  /// left out, then `of` waits for it.
  void begin_next();

 private:
  DataLoader& loader_;
  Communicator& world_;
  bool counts_;  // of the ranks that train on the same rows (tp, cp) the first one
  std::int64_t share_ = 0;
  std::int64_t counted_ = 0;
  std::int64_t total_ = 0;
  WorkPtr pending_;
};

}  // namespace trireme
