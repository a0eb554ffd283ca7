#include "device/cpu_peak.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

#include "core/timer.hpp"
#include "ops/cpu/kernels.hpp"

namespace trireme {
namespace {

using ops::kernels::Multiply;
using ops::kernels::Table;

// Short repeats: one of them fits between the time slices of other processes.
constexpr int kRepeats = 40;
constexpr double kRepeat_s = 0.002;

/// FLOP/s of all threads at once, from the first one's begin to the last one's end.
double rate_of_threads(const Table& table, Multiply what, std::int64_t rounds) {
  const int threads = at::get_num_threads();
  std::atomic<double> flops{0};
  const Timer timer;
  at::parallel_for(0, threads, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) flops += table.multiply_adds(what, rounds);
  });
  return flops / timer.seconds();
}

double best_rate(const Table& table, Multiply what) {
  constexpr std::int64_t kFirstRounds = 100000;
  constexpr int kFirstRepeats = 10;
  double first_s = kRepeat_s;  // the best one: a repeat that was interrupted says nothing
  for (int i = 0; i < kFirstRepeats; ++i) {
    const Timer timer;
    const double flops = table.multiply_adds(what, kFirstRounds);
    if (flops == 0) return 0;  // the instruction set has no such instruction
    first_s = std::min(first_s, timer.seconds());
  }
  const auto rounds = static_cast<std::int64_t>(kFirstRounds * (kRepeat_s / first_s));
  double best = 0;
  for (int i = 0; i < kRepeats; ++i) best = std::max(best, rate_of_threads(table, what, rounds));
  return best;
}

}  // namespace

double cpu_register_flops(at::ScalarType compute) {
  if (compute == at::kDouble) return best_rate(ops::kernels::table(), Multiply::f64);
  double best = best_rate(ops::kernels::table(), Multiply::f32);
  if (compute != at::kBFloat16) return best;
  for (const Table* table : ops::kernels::usable_tables())
    best = std::max(best, best_rate(*table, Multiply::bf16_pairs));
  return best;
}

}  // namespace trireme
