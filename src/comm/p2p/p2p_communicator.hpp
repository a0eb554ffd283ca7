#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "comm/base_communicator.hpp"
#include "comm/p2p/engine.hpp"
#include "comm/p2p/operations.hpp"
#include "comm/p2p/transport.hpp"

namespace trireme::comm {

/// A communicator that runs the state machines of operations.hpp over a transport.
class P2PCommunicator : public BaseCommunicator {
 public:
  P2PCommunicator(std::string name, std::shared_ptr<Transport> transport,
                  std::shared_ptr<Engine> engine, CommOptions options);

 protected:
  [[nodiscard]] bool counts_sends(std::string_view) const override { return true; }

  WorkPtr start_all_reduce(Call call, const Reduction& request) override;
  WorkPtr start_reduce_scatter(Call call, const Reduction& request) override;
  WorkPtr start_all_gather(Call call, const AllGather& request) override;
  WorkPtr start_broadcast(Call call, const Broadcast& request) override;
  WorkPtr start_exchange(Call call, const Exchange& request) override;
  WorkPtr start_barrier(Call call) override;

  WorkPtr launch(Call call, std::unique_ptr<Operation> operation);
  const std::shared_ptr<Transport> transport_;
  const std::shared_ptr<Engine> engine_;

 private:
  [[nodiscard]] TagPair next_tags();
  /// Returns the channel of the next collective; all ranks compute the same tags.
  [[nodiscard]] Channel channel(const Call& call);
  [[nodiscard]] SegmentedOptions segmented() const;

  // does not count exchanges, because not all ranks take part in each exchange
  std::uint64_t collectives_ = 0;
};

}  // namespace trireme::comm
