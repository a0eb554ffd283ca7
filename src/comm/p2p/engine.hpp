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

/// All pending operations of one rank in all its groups. While a rank waits for one operation, the
/// engine advances all others, because a peer in another group may need this rank. Only the thread
/// that owns the rank uses it.
class Engine {
 public:
  /// Starts `operation` with a first advance(). Returns the Work that the caller waits for. If
  /// `operation` is null, the Work is already complete.
  static WorkPtr start(std::shared_ptr<Engine> engine, std::shared_ptr<Transport> transport,
                       Call call, std::unique_ptr<Operation> operation);

  /// Advances every operation. If an operation throws, stores the error, and its Work throws it.
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
