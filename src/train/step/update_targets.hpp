#pragma once
#include <cstdint>
#include <vector>

#include "comm/communicator.hpp"
#include "data/loader.hpp"
#include "parallel/mesh.hpp"

namespace trireme::train {

/// Counts the targets of whole updates over all data ranks. Each rank counts its own share
/// (DataLoader); the sum for the next update overlaps with the current update.
class UpdateTargets {
 public:
  /// `world`: all ranks of the mesh, with host memory. All arguments must outlive this object.
  UpdateTargets(data::DataLoader& loader, comm::Communicator& world, const parallel::Mesh& mesh);
  UpdateTargets(const UpdateTargets&) = delete;
  UpdateTargets& operator=(const UpdateTargets&) = delete;

  /// Sets update_targets of `batches`, this rank's batches of the next update, and returns it.
  /// Throws Error(data) if their number of targets differs from the counted share. Collective.
  std::int64_t of(std::vector<data::Batch>& batches);

  /// Starts the sum for the update after the one of the last call of `of`. This call is optional;
  /// without it `of` waits for the sum. Collective.
  void begin_next();

 private:
  data::DataLoader& loader_;
  comm::Communicator& world_;
  bool counts_;  // true on the first of the ranks that train on the same rows (tp, cp, pp)
  std::int64_t share_ = 0;
  std::int64_t counted_ = 0;
  std::int64_t total_ = 0;
  comm::WorkPtr pending_;
};

}  // namespace trireme::train
