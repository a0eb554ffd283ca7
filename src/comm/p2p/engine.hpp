#pragma once
#include <exception>
#include <memory>
#include <vector>

#include "comm/base_communicator.hpp"
#include "comm/p2p/transport.hpp"

namespace trireme {

/// A collective under way: a state machine that moves whenever it is asked to.
class Operation {
 public:
  virtual ~Operation() = default;

  /// Moves as far as it can without blocking; true when complete.
  virtual bool advance() = 0;
};

/// All unfinished operations of one rank, all its groups together, so that waiting for one drives
/// the others: a rank that waits in group A may be what a peer needs in group B. Used by the thread
/// that owns the rank only.
class Engine {
 public:
  /// Starts `operation` (its first advance happens here; null: nothing to move) and returns the
  /// handle the caller waits on.
  static WorkPtr start(std::shared_ptr<Engine> engine, std::shared_ptr<Transport> transport,
                       Call call, std::unique_ptr<Operation> operation);

  /// Moves every operation; an error is kept for the Work it belongs to.
  void progress();

 private:
  friend class EngineWork;

  struct Entry {
    std::unique_ptr<Operation> operation;  // null once complete or failed
    Call call;
    std::exception_ptr error;

    void advance();
  };

  std::vector<std::shared_ptr<Entry>> pending_;
};

}  // namespace trireme
