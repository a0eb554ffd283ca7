#pragma once
#include <exception>
#include <memory>
#include <vector>

#include "comm/base_communicator.hpp"
#include "comm/p2p/transport.hpp"

namespace trireme::comm {

/// A pending collective: a state machine that moves when advance() is called.
class Operation {
 public:
  virtual ~Operation() = default;

  /// Moves as far as possible without blocking; returns true if complete.
  virtual bool advance() = 0;
};

/// All pending operations of one rank in all its groups. Waiting for one operation drives the
/// others, because a rank that waits in group A may be needed by a peer in group B. Only the thread
/// that owns the rank uses it.
class Engine {
 public:
  /// Starts `operation` with its first advance() and returns the handle that the caller waits on. A
  /// null operation has nothing to move.
  static WorkPtr start(std::shared_ptr<Engine> engine, std::shared_ptr<Transport> transport,
                       Call call, std::unique_ptr<Operation> operation);

  /// Moves every operation; stores an error for the Work it belongs to.
  void progress();

 private:
  friend class EngineWork;

  struct Entry {
    std::unique_ptr<Operation> operation;  // null if complete or failed
    Call call;
    std::exception_ptr error;

    void advance();
  };

  std::vector<std::shared_ptr<Entry>> pending_;
};

}  // namespace trireme::comm
