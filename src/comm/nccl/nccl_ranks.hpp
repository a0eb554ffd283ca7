#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/nccl/nccl_handles.hpp"
#include "comm/nccl/nccl_watch.hpp"

/// Resources on the device that groups over the same ranks share. Groups of different mesh axes
/// often have the same ranks (without cp, dp and dp x cp are equal), and each NCCL communicator
/// costs device memory and start-up time.
namespace trireme::comm {

class NcclRanks;

/// Resources that all groups of one rank share.
struct NcclContext {
  NcclContext(const NcclApi& table, int index, int rank)
      : api(table), device(index), world_rank(rank), watch(table, index) {}

  const NcclApi& api;
  const int device;
  const int world_rank;
  NcclWatch watch;
  /// Key: the world ranks in the group's order, because a communicator depends on the order.
  std::map<std::vector<int>, std::weak_ptr<NcclRanks>> rank_sets;
};

/// A stream and the NCCL communicator that runs on it.
class NcclLane {
 public:
  /// Collective over `bootstrap`, which broadcasts the unique id. A group of one rank has only a
  /// stream.
  NcclLane(NcclContext& context, Communicator& bootstrap, const std::string& what);
  ~NcclLane();
  NcclLane(const NcclLane&) = delete;
  NcclLane& operator=(const NcclLane&) = delete;

  [[nodiscard]] ncclComm_t comm() const { return comm_; }

  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }

 private:
  NcclContext& context_;
  const CommStream stream_;
  ncclComm_t comm_ = nullptr;  // null in a group of one
};

/// The lanes of one set of ranks. Reductions have a separate lane, because a prefetching gather
/// must not wait for gradients: NCCL runs all operations of one communicator one after another,
/// even on different streams. The lane for reductions is created at the first reduction.
class NcclRanks {
 public:
  NcclRanks(std::shared_ptr<NcclContext> context, Communicator& bootstrap);

  /// Returns the lane of gathers, broadcasts and exchanges.
  [[nodiscard]] const NcclLane& gathers() const { return gathers_; }

  /// Collective at the first call.
  [[nodiscard]] const NcclLane& reductions(Communicator& bootstrap);

 private:
  const std::shared_ptr<NcclContext> context_;
  const NcclLane gathers_;
  std::optional<NcclLane> reductions_;
};

/// Returns the lanes for the ranks of `bootstrap`. Uses the existing lanes if all ranks still hold
/// them; otherwise creates new lanes. Collective.
std::shared_ptr<NcclRanks> share_ranks(const std::shared_ptr<NcclContext>& context,
                                       Communicator& bootstrap);

}  // namespace trireme::comm
