#include "comm/nccl/nccl_ranks.hpp"

#include <cstdint>
#include <exception>

#include "comm/scalars.hpp"

namespace trireme::comm {

NcclLane::NcclLane(NcclContext& context, Communicator& bootstrap, const std::string& what)
    : context_(context), stream_(context.api) {
  if (bootstrap.size() == 1) return;  // one rank only copies, so it needs no NCCL communicator
  const NcclApi& api = context.api;
  const std::string group = formatted("{} of group {}", what, bootstrap.name());
  ncclUniqueId id{};
  if (bootstrap.rank() == 0)
    check_nccl(api, api.get_unique_id(&id), "ncclGetUniqueId for " + group);
  bootstrap
      .broadcast({.data = id.internal,
                  .count = sizeof id.internal,
                  .dtype = DType::u8,
                  .root = 0,
                  .tag = "NCCL id"})
      ->wait();
  check_cuda(api, api.set_device(context.device), formatted("cudaSetDevice {}", context.device));
  check_nccl(api, api.comm_init_rank(&comm_, bootstrap.size(), id, bootstrap.rank()),
             formatted("ncclCommInitRank for {}, rank {} of {}, device {}", group, bootstrap.rank(),
                       bootstrap.size(), context.device));
}

NcclLane::~NcclLane() {
  if (comm_ == nullptr) return;
  context_.watch.remove(comm_);
  if (std::uncaught_exceptions() > 0) {
    // After an error, ncclCommDestroy would wait for peers that may never answer.
    context_.api.comm_abort(comm_);
  } else {
    context_.api.comm_destroy(comm_);
  }
}

NcclRanks::NcclRanks(std::shared_ptr<NcclContext> context, Communicator& bootstrap)
    : context_(std::move(context)), gathers_(*context_, bootstrap, "gathers") {}

const NcclLane& NcclRanks::reductions(Communicator& bootstrap) {
  if (!reductions_) reductions_.emplace(*context_, bootstrap, "reductions");
  return *reductions_;
}

std::shared_ptr<NcclRanks> share_ranks(const std::shared_ptr<NcclContext>& context,
                                       Communicator& bootstrap) {
  const auto ranks =
      all_gather_value<std::int32_t>(bootstrap, context->world_rank, "ranks of a group");
  std::weak_ptr<NcclRanks>& known = context->rank_sets[ranks];
  std::shared_ptr<NcclRanks> lanes = known.lock();
  // A rank may already have released its last group over these ranks.
  const std::int32_t held = lanes ? 1 : 0;
  if (all_reduce_value(bootstrap, held, ReduceOp::min, "ranks known") == 1) return lanes;
  lanes = std::make_shared<NcclRanks>(context, bootstrap);
  known = lanes;
  return lanes;
}

}  // namespace trireme::comm
