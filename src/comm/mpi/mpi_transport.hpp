#pragma once
#include "comm/mpi/mpi_handles.hpp"
#include "comm/p2p/transport.hpp"

namespace trireme::comm {

/// Non-blocking byte messages on a separate communicator, so that tags cannot conflict.
class MpiTransport final : public Transport {
 public:
  MpiTransport(MpiComm comm, bool shares_cores);

  [[nodiscard]] int rank() const override { return rank_; }

  [[nodiscard]] int size() const override { return size_; }

  [[nodiscard]] int max_tag() const override { return max_tag_; }

  TransferPtr receive(int peer, int tag, void* data, std::uint64_t bytes) override;
  void pause(double waited_s) override;

  [[nodiscard]] MPI_Comm comm() const { return comm_.get(); }

 protected:
  TransferPtr start_send(int peer, int tag, const void* data, std::uint64_t bytes) override;

 private:
  MpiComm comm_;
  bool shares_cores_;
  int rank_ = 0;
  int size_ = 1;
  int max_tag_ = 32767;
};

}  // namespace trireme::comm
