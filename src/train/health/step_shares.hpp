#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace trireme::train {

/// Mean seconds per step of one report.
struct StepSeconds {
  double step = 0;
  double data_wait = 0;
  std::optional<double> comm_exposed = std::nullopt;  // nullopt: unknown
  std::optional<double> peer_wait = std::nullopt;     // nullopt: unknown
  double save = 0;
  double validation = 0;
};

/// Shares of the run's time, over all steps of this start except the first one (warm-up).
class StepShares {
 public:
  static constexpr std::int64_t kLeastSteps = 20;  // least number of steps for a warning
  static constexpr double kSlowData = 0.05;        // share of the time that causes a warning

  void add(const StepSeconds& mean, std::int64_t steps);

  /// Returns true once, when waiting for data has taken more than kSlowData of the time.
  bool is_data_newly_slow();

  /// Returns a text such as "data wait 0.2 %, exposed communication 3.1 %, other ranks 0.4 %, saves
  /// 1.0 %, validation 0.0 %", without unknown shares; "" without steps.
  [[nodiscard]] std::string text() const;

  [[nodiscard]] std::int64_t steps() const noexcept { return steps_; }

  [[nodiscard]] const StepSeconds& sums() const noexcept { return sums_; }

 private:
  StepSeconds sums_;
  std::int64_t steps_ = 0;
  bool has_begun_ = false;
  bool warned_ = false;
};

/// Returns advice on slow data. `batch_tokens`: tokens per update over all ranks. `threads`:
/// LibTorch threads per rank. `path`: the data set.
std::string data_advice(const StepShares& shares, double batch_tokens, int threads,
                        const std::string& path);

}  // namespace trireme::train
