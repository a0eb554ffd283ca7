#include "comm/p2p/engine.hpp"

#include <algorithm>

#include "comm/liveness/activity.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/named_range.hpp"
#include "core/operation_record.hpp"
#include "core/timer.hpp"

namespace trireme::comm {

void Engine::Entry::advance() {
  if (!operation) return;
  try {
    if (!operation->advance()) return;
    call.complete();
  } catch (const Error& e) {
    error = std::make_exception_ptr(Error(e.kind(), formatted("{}: {}", call.what, e.what())));
  } catch (...) {
    error = std::current_exception();
  }
  operation.reset();
}

void Engine::progress() {
  // advance() never starts an operation, so pending_ does not change in this loop. Operations stay
  // in the order of their start.
  for (const auto& entry : pending_) entry->advance();
  std::erase_if(pending_, [](const auto& entry) { return !entry->operation; });
}

namespace {

/// Tells the heartbeat that this rank waits for other ranks.
class Waiting {
 public:
  explicit Waiting(Activity* activity) : activity_(activity) {
    if (activity_ != nullptr) activity_->set_waiting(true);
  }

  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  ~Waiting() {
    if (activity_ != nullptr) activity_->set_waiting(false);
  }

 private:
  Activity* activity_;
  OperationMark mark_{StepWork::comm};
};

}  // namespace

class EngineWork final : public Work {
 public:
  EngineWork(std::shared_ptr<Engine> engine, std::shared_ptr<Transport> transport,
             std::shared_ptr<Engine::Entry> entry)
      : engine_(std::move(engine)),
        transport_(std::move(transport)),
        entry_(std::move(entry)),
        exceptions_at_start_(std::uncaught_exceptions()) {}

  EngineWork(const EngineWork&) = delete;
  EngineWork& operator=(const EngineWork&) = delete;

  ~EngineWork() override {
    // While an exception unwinds the stack, peers may never answer. Withdraw the messages instead
    // of waiting.
    if (std::uncaught_exceptions() > exceptions_at_start_) entry_->operation.reset();
    if (!entry_->operation) return;
    try {
      wait();
    } catch (const std::exception& e) {
      log::error(e.what());
      entry_->operation.reset();
    }
  }

  bool poll() override {
    if (entry_->operation) engine_->progress();
    if (entry_->error) std::rethrow_exception(entry_->error);
    return !entry_->operation;
  }

  void wait() override {
    if (poll()) return;
    RunningTimer timer;
    const NamedRange range(Phase::communication,
                           [this] { return cat("wait for ", entry_->call.title()); });
    const Waiting here(entry_->call.recorder->activity().get());
    while (!poll()) {
      const double waited_s = timer.seconds();
      if (waited_s > entry_->call.timeout_s) {
        entry_->operation.reset();  // withdraws its messages
        entry_->call.timed_out();
      }
      transport_->pause(waited_s);
    }
  }

 private:
  const std::shared_ptr<Engine> engine_;        // outlives the communicator if the Work does
  const std::shared_ptr<Transport> transport_;  // same lifetime
  const std::shared_ptr<Engine::Entry> entry_;
  const int exceptions_at_start_;
};

WorkPtr Engine::start(std::shared_ptr<Engine> engine, std::shared_ptr<Transport> transport,
                      Call call, std::unique_ptr<Operation> operation) {
  auto entry = std::make_shared<Entry>();
  entry->operation = std::move(operation);
  entry->call = std::move(call);
  if (entry->operation) {
    entry->advance();
  } else {
    entry->call.complete();  // nothing to move
  }
  if (entry->operation) engine->pending_.push_back(entry);
  return std::make_unique<EngineWork>(std::move(engine), std::move(transport), std::move(entry));
}

}  // namespace trireme::comm
