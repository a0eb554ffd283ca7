#pragma once
#include <cstdint>
#include <memory>

#include "comm/recorder.hpp"

namespace trireme {

/// One message under way. Destroying an unfinished one withdraws it (error paths only: the peer
/// then waits in vain).
class Transfer {
 public:
  virtual ~Transfer() = default;

  /// Drives without blocking; true when the buffer may be used again. Throws Error(comm) on a lost
  /// peer and Error(usage) if the peer's message has another size.
  virtual bool done() = 0;
};

using TransferPtr = std::unique_ptr<Transfer>;

/// Messages between the ranks of one group: what thread/ and mpi/ provide and p2p/ builds all
/// collectives on. Two messages of one sender, receiver and tag match in the order they were
/// started. Any size, also 0.
class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Tags are in [0, max_tag()].
  [[nodiscard]] virtual int max_tag() const = 0;

  /// Counts the message in `sent`: the one way to a peer, so that nothing moves uncounted.
  TransferPtr send(SentCount& sent, int peer, int tag, const void* data, std::uint64_t bytes) {
    sent.add(bytes);
    return start_send(peer, tag, data, bytes);
  }

  virtual TransferPtr receive(int peer, int tag, void* data, std::uint64_t bytes) = 0;

  /// Called by a rank that has waited for so long when nothing moved: gives the processor away for a
  /// short time.
  virtual void pause(double waited_s) = 0;

 protected:
  virtual TransferPtr start_send(int peer, int tag, const void* data, std::uint64_t bytes) = 0;
};

}  // namespace trireme
