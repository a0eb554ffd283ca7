#pragma once
#include <cstdint>
#include <memory>

#include "comm/recorder.hpp"

namespace trireme::comm {

/// One pending message. The destructor withdraws an unfinished message. This happens only after
/// errors, because the peer then waits forever.
class Transfer {
 public:
  virtual ~Transfer() = default;

  /// Makes progress without blocking; returns true if the buffer may be used again. Throws
  /// Error(comm) if a peer is lost and Error(usage) if the peer's message has another size.
  virtual bool done() = 0;
};

using TransferPtr = std::unique_ptr<Transfer>;

/// Messages between the ranks of one group. thread/ and mpi/ implement it, and p2p/ builds all
/// collectives on it. Two messages with the same sender, receiver and tag match in the order of
/// their start. Any size is allowed, also 0.
class Transport {
 public:
  virtual ~Transport() = default;
  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;

  /// Tags are in [0, max_tag()].
  [[nodiscard]] virtual int max_tag() const = 0;

  /// Sends a message and counts it in `sent`. All messages to peers go through this function.
  TransferPtr send(SentCount& sent, int peer, int tag, const void* data, std::uint64_t bytes) {
    sent.add(bytes);
    return start_send(peer, tag, data, bytes);
  }

  virtual TransferPtr receive(int peer, int tag, void* data, std::uint64_t bytes) = 0;

  /// Yields the processor for a short time. `waited_s` is the time without progress so far, in
  /// seconds.
  virtual void pause(double waited_s) = 0;

 protected:
  virtual TransferPtr start_send(int peer, int tag, const void* data, std::uint64_t bytes) = 0;
};

}  // namespace trireme::comm
