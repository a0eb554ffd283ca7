#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/nccl/nccl_handles.hpp"
#include "comm/nccl/nccl_watch.hpp"

/// What groups over equal ranks share on the device: mesh axes often coincide (dp and dp x cp
/// without cp), and a communicator costs device memory and start-up time.
namespace trireme {

class NcclRanks;

/// What all groups of one rank share.
struct NcclContext {
  NcclContext(const NcclApi& table, int index, int rank)
      : api(table), device(index), world_rank(rank), watch(table, index) {}

  const NcclApi& api;
  const int device;
  const int world_rank;
  NcclWatch watch;
  /// By the world's ranks in the group's order, which is part of what a communicator is.
  std::map<std::vector<int>, std::weak_ptr<NcclRanks>> rank_sets;
};

/// A stream and the NCCL communicator whose operations run on it.
class NcclLane {
 public:
  /// Collective over `bootstrap`, which carries the id; alone there is a stream only.
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

/// The lanes of one set of ranks. Reductions have one of their own, made at the first of them:
/// NCCL runs the operations of one communicator one after another, whatever their streams, and a
/// gather ahead of its use must not wait for gradients.
class NcclRanks {
 public:
  NcclRanks(std::shared_ptr<NcclContext> context, Communicator& bootstrap);

  /// Of gathers, broadcasts and exchanges.
  [[nodiscard]] const NcclLane& gathers() const { return gathers_; }

  /// Collective at the first call.
  [[nodiscard]] const NcclLane& reductions(Communicator& bootstrap);

 private:
  const std::shared_ptr<NcclContext> context_;
  const NcclLane gathers_;
  std::optional<NcclLane> reductions_;
};

/// Collective. The lanes of `bootstrap`'s ranks: those that all of them still hold, else new ones.
std::shared_ptr<NcclRanks> share_ranks(const std::shared_ptr<NcclContext>& context,
                                       Communicator& bootstrap);

}  // namespace trireme
