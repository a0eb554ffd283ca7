#pragma once
#include <array>
#include <chrono>
#include <cstddef>
#include <string_view>
#include <utility>

/// The time and the floating-point operations of each kind of work in a training step
/// (`bench step`). Without a record, a mark costs one read of a thread-local pointer.
namespace trireme {

enum class StepWork {
  matmul_forward,
  matmul_dx,
  matmul_dw,
  head,
  attention_forward,
  attention_backward,
  norm,
  rope,
  activation,
  residual,
  embedding,
  optimizer,
  pack,
  comm,
  other,
};

/// The names in the enum's order. `matmul_*` are the linear layers, `head` is the output layer with
/// the loss, `pack` converts the master weights to the weights of the next forward pass, and `other`
/// is the time outside all marks.
inline constexpr std::array<std::string_view, 15> kStepWork{
    "matmul_forward",     "matmul_dx", "matmul_dw", "head",       "attention_forward",
    "attention_backward", "norm",      "rope",      "activation", "residual",
    "embedding",          "optimizer", "pack",      "comm",       "other"};

/// Adds up the work of one thread. Each moment counts for the innermost mark, so the times add up to
/// the time between start() and stop().
class OperationRecord {
 public:
  struct Total {
    double seconds = 0;
    double flops = 0;
  };

  using Totals = std::array<Total, kStepWork.size()>;

  /// Sets all totals to 0 and records the work of the calling thread. No other record may be active
  /// on this thread.
  void start();
  void stop();

  /// Lets the time count for `work` from now on. Returns the previous kind of work.
  StepWork enter(StepWork work) {
    const auto now = std::chrono::steady_clock::now();
    total(now_).seconds += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    return std::exchange(now_, work);
  }

  /// Adds floating-point operations to the current kind of work.
  void count(double flops) { total(now_).flops += flops; }

  [[nodiscard]] StepWork current() const { return now_; }

  [[nodiscard]] const Totals& totals() const { return totals_; }

 private:
  Total& total(StepWork work) { return totals_[static_cast<std::size_t>(work)]; }

  Totals totals_{};
  StepWork now_ = StepWork::other;
  std::chrono::steady_clock::time_point since_{};
};

/// The record of the calling thread; null: its work is not recorded. LibTorch runs the backward pass
/// of a CPU on the thread that starts it.
inline constinit thread_local OperationRecord* operation_record = nullptr;

inline void OperationRecord::start() {
  totals_ = {};
  now_ = StepWork::other;
  since_ = std::chrono::steady_clock::now();
  operation_record = this;
}

inline void OperationRecord::stop() {
  enter(StepWork::other);
  operation_record = nullptr;
}

/// Marks work from the construction to the destruction of this object.
class OperationMark {
 public:
  explicit OperationMark(StepWork work) : record_(operation_record) {
    if (record_ != nullptr) outer_ = record_->enter(work);
  }

  OperationMark(const OperationMark&) = delete;
  OperationMark& operator=(const OperationMark&) = delete;

  ~OperationMark() {
    if (record_ != nullptr) record_->enter(outer_);
  }

 private:
  OperationRecord* record_;
  StepWork outer_ = StepWork::other;
};

/// Marks a matrix product: work of `work` unless the caller has marked it as something else.
class ProductMark {
 public:
  ProductMark(StepWork work, double flops) : mark_(inside(work)) {
    if (operation_record != nullptr) operation_record->count(flops);
  }

 private:
  static StepWork inside(StepWork work) {
    if (operation_record == nullptr || operation_record->current() == StepWork::other) return work;
    return operation_record->current();
  }

  OperationMark mark_;
};

}  // namespace trireme
