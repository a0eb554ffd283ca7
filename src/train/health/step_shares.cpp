#include "train/health/step_shares.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::train {
namespace {

constexpr double kTokenBytes = 4;  // upper limit per token in a shard: token id and mask bit

/// Returns a share in percent, rounded to one decimal.
double percent(double part, double whole) {
  return std::round(1000 * part / whole) / 10;
}

}  // namespace

void StepShares::add(const StepSeconds& mean, std::int64_t steps) {
  if (!has_begun_) {
    has_begun_ = true;
    return;
  }
  const auto count = static_cast<double>(steps);
  steps_ += steps;
  sums_.step += count * mean.step;
  sums_.data_wait += count * mean.data_wait;
  if (mean.comm_exposed)
    sums_.comm_exposed = sums_.comm_exposed.value_or(0) + count * *mean.comm_exposed;
  if (mean.peer_wait) sums_.peer_wait = sums_.peer_wait.value_or(0) + count * *mean.peer_wait;
  sums_.save += count * mean.save;
  sums_.validation += count * mean.validation;
}

bool StepShares::is_data_newly_slow() {
  if (warned_ || steps_ < kLeastSteps || sums_.data_wait <= kSlowData * sums_.step) return false;
  warned_ = true;
  return true;
}

std::string StepShares::text() const {
  if (steps_ == 0) return "";
  const double all = sums_.step;
  std::string text = formatted("data wait {} %, ", percent(sums_.data_wait, all));
  if (sums_.comm_exposed && sums_.peer_wait) {  // peer_wait contains comm_exposed
    text += formatted("exposed communication {} %, other ranks {} %, ",
                      percent(*sums_.comm_exposed, all),
                      percent(std::max(0.0, *sums_.peer_wait - *sums_.comm_exposed), all));
  }
  return text + formatted("saves {} %, validation {} %", percent(sums_.save, all),
                          percent(sums_.validation, all));
}

std::string data_advice(const StepShares& shares, double batch_tokens, int threads,
                        const std::string& path) {
  const StepSeconds& sums = shares.sums();
  const auto steps = static_cast<double>(shares.steps());
  const double step_s = sums.step / steps;
  const double bytes_per_s = batch_tokens * kTokenBytes / (step_s - sums.data_wait / steps);
  std::string text = formatted(
      "waiting for data takes {} % of {} steps ({} of {} a step). All ranks together read at most {}/s from {}. If that disk is slower (dd if=SHARD of=/dev/null bs=8M), copy the data set to a local disk (cp -r, then --data there)",
      percent(sums.data_wait, sums.step), shares.steps(), format_seconds(sums.data_wait / steps),
      format_seconds(step_s), format_bytes(bytes_per_s), path);
  text +=
      threads > 1
          ? formatted(
                ". If it is faster, the thread that makes batches has too little CPU time: give --train.threads {} instead of {}",
                threads - 1, threads)
          : std::string(
                ". If it is faster, the thread that makes batches has too little CPU time: give each rank a second core (--cpus-per-task)");
  return text;
}

}  // namespace trireme::train
