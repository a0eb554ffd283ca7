#pragma once
#include "comm/base_communicator.hpp"

namespace trireme::comm {

/// A group of one rank: every collective is at most a copy and is complete when the call returns.
/// Buffers must be in host memory; `stream` is ignored. A group of one rank on nccl does not use
/// this class, because its buffers are on the device.
class SelfCommunicator final : public BaseCommunicator {
 public:
  explicit SelfCommunicator(std::string name = "world", CommOptions options = {});

  [[nodiscard]] const char* backend() const override { return "self"; }

  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override;

 protected:
  // True, because there are no messages to count.
  [[nodiscard]] bool counts_sends(std::string_view) const override { return true; }

  WorkPtr start_all_reduce(Call call, const Reduction& request) override;
  WorkPtr start_reduce_scatter(Call call, const Reduction& request) override;
  WorkPtr start_all_gather(Call call, const AllGather& request) override;
  WorkPtr start_broadcast(Call call, const Broadcast& request) override;
  WorkPtr start_exchange(Call call, const Exchange& request) override;
  WorkPtr start_barrier(Call call) override;
};

}  // namespace trireme::comm
