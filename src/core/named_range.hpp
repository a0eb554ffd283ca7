#pragma once
#include <string>
#include <type_traits>
#include <utility>

/// Named ranges of the work of a thread, for profiles. Code marks its phases and collectives with
/// NamedRange. Without an observer, a range costs one read of a thread-local pointer.
namespace trireme {

/// The class of time that a range begins; none: the class does not change.
enum class Phase {
  none,
  forward,
  backward,
  communication,
  data_wait,
  optimizer,
  checkpoint,
  other,
};

/// Receives the ranges of one thread, properly nested.
class RangeObserver {
 public:
  RangeObserver() = default;
  RangeObserver(const RangeObserver&) = delete;
  RangeObserver& operator=(const RangeObserver&) = delete;
  virtual ~RangeObserver() = default;

  virtual void begin(Phase phase, const std::string& name) = 0;
  virtual void end() = 0;
};

/// The observer of the calling thread; null: its ranges are not observed.
inline constinit thread_local RangeObserver* range_observer = nullptr;

/// A range from the construction to the destruction of this object. The observer must not change
/// inside a range.
class NamedRange {
 public:
  /// `name`: a text, or a function that returns a text and runs only if there is an observer.
  template <class Name>
  NamedRange(Phase phase, Name&& name) : observer_(range_observer) {
    if (observer_ == nullptr) return;
    if constexpr (std::is_invocable_v<Name>) {
      observer_->begin(phase, std::forward<Name>(name)());
    } else {
      observer_->begin(phase, std::string(std::forward<Name>(name)));
    }
  }

  NamedRange(const NamedRange&) = delete;
  NamedRange& operator=(const NamedRange&) = delete;

  ~NamedRange() {
    if (observer_ != nullptr) observer_->end();
  }

 private:
  RangeObserver* observer_;
};

}  // namespace trireme
