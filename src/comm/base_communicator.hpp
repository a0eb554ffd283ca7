#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/options.hpp"
#include "comm/recorder.hpp"

namespace trireme::comm {

/// One recorded operation, passed to the backend that runs it.
struct Call {
  std::shared_ptr<Recorder> recorder;
  std::uint64_t sequence = 0;
  SentCount* sent = nullptr;  // owned by the recorder; counts the messages of this operation
  std::string what;  // "all_reduce 'grads' of group dp (rank 1 of 4), operation 17, 4000 bytes"
  double timeout_s = 0;

  void complete() const { recorder->complete(sequence); }

  /// Returns the name of the operation in a profile: "all_reduce 'grads' of group dp".
  [[nodiscard]] std::string title() const { return what.substr(0, what.find(" (rank ")); }

  /// Throws Error(comm) that names this operation, and records the timeout in the Activity, which
  /// the heartbeat sends to rank 0.
  [[noreturn]] void timed_out() const;
};

/// The common part of all backends. Each collective checks its arguments, counts and records the
/// operation, then calls `start_*`. A backend implements the `start_*` functions, which receive
/// checked arguments, and split().
class BaseCommunicator : public Communicator {
 public:
  BaseCommunicator(std::string name, int rank, int size, CommOptions options);

  [[nodiscard]] int rank() const final { return rank_; }

  [[nodiscard]] int size() const final { return size_; }

  [[nodiscard]] const std::string& name() const final { return name_; }

  [[nodiscard]] std::vector<TrafficRow> traffic() const final { return recorder_->traffic(); }

  [[nodiscard]] std::vector<CommRecord> recent() const final { return recorder_->recent(); }

  [[nodiscard]] const CommOptions& options() const { return options_; }

  WorkPtr all_reduce(const Reduction& request) final;
  WorkPtr reduce_scatter(const Reduction& request) final;
  WorkPtr all_gather(const AllGather& request) final;
  WorkPtr broadcast(const Broadcast& request) final;
  WorkPtr all_to_all(const AllToAll& request) final;
  WorkPtr exchange(const Exchange& request) final;
  void barrier(const Barrier& request) final;

 protected:
  /// Returns true if this backend can reduce this type with this operation.
  [[nodiscard]] virtual bool supports(DType dtype, ReduceOp op) const;

  /// Returns true if this backend counts all messages of the operation in Call::sent.
  [[nodiscard]] virtual bool counts_sends(std::string_view operation) const = 0;

  virtual WorkPtr start_all_reduce(Call call, const Reduction& request) = 0;
  virtual WorkPtr start_reduce_scatter(Call call, const Reduction& request) = 0;
  virtual WorkPtr start_all_gather(Call call, const AllGather& request) = 0;
  virtual WorkPtr start_broadcast(Call call, const Broadcast& request) = 0;
  /// Runs exchange() and all_to_all(). The request may contain messages from this rank to itself.
  virtual WorkPtr start_exchange(Call call, const Exchange& request) = 0;
  virtual WorkPtr start_barrier(Call call) = 0;

 private:
  [[nodiscard]] Call record(const char* operation, std::string_view tag,
                            std::uint64_t payload) const;
  [[noreturn]] void refuse(const char* operation, std::string_view tag,
                           const std::string& why) const;
  void check_reduction(const char* operation, const Reduction& request) const;
  void check_messages(std::string_view tag, std::span<const Message> messages) const;

  const std::string name_;
  const int rank_;
  const int size_;
  const CommOptions options_;
  const std::shared_ptr<Recorder> recorder_;
};

const char* op_name(ReduceOp op) noexcept;

/// A Work that is complete from the start.
class DoneWork final : public Work {
 public:
  bool poll() override { return true; }

  void wait() override {}
};

/// A message from a rank to itself.
struct OwnMessage {
  void* to;
  const void* from;
  std::uint64_t bytes;
};

/// The messages of an exchange, with this rank's messages to itself separated.
struct SortedMessages {
  std::vector<OwnMessage> own;  // only messages that need a copy
  std::vector<Message> sends;
  std::vector<Message> receives;
};

/// Matches sends and receives of `rank` to itself in order. Throws Error(usage) on a mismatch.
SortedMessages sort_messages(const Call& call, int rank, const Exchange& request);

/// Copies the messages in host memory.
void copy_own(const std::vector<OwnMessage>& messages);

}  // namespace trireme::comm
