#pragma once
#include <cstdint>
#include <string>

namespace trireme {

/// Seconds of a step, as a report gives them: means over its steps.
struct StepSeconds {
  double step = 0;
  double data_wait = 0;
  double comm_exposed = 0;
  double peer_wait = 0;
  double save = 0;
  double validation = 0;
};

/// Where the time of a run goes, over all steps but the first of this start, which pays for warm-up.
class StepShares {
 public:
  static constexpr std::int64_t kLeastSteps = 20;  // before data is called slow
  static constexpr double kSlowData = 0.05;        // of the time

  void add(const StepSeconds& mean, std::int64_t steps);

  /// True once, when waiting for data has taken more than kSlowData of the time.
  bool data_became_slow();

  /// "data wait 0.2 %, exposed communication 3.1 %, other ranks 0.4 %, saves 1.0 %, validation
  /// 0.0 %"; "" without steps.
  [[nodiscard]] std::string text() const;

  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }

  /// Sums of all steps.
  [[nodiscard]] const StepSeconds& sums() const noexcept { return sums_; }

 private:
  StepSeconds sums_;
  std::int64_t steps_ = 0;
  bool begun_ = false;
  bool told_ = false;
};

/// What to do about slow data: `batch_tokens` an update over all ranks, `threads` of LibTorch a
/// rank, on a set in `path`.
std::string data_advice(const StepShares& shares, double batch_tokens, int threads,
                        const std::string& path);

}  // namespace trireme
