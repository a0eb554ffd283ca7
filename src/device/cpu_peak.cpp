#include "device/cpu_peak.hpp"

#include <ATen/Parallel.h>
#include <sched.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/error.hpp"
#include "core/process/allowed_cpus.hpp"
#include "ops/cpu/kernels.hpp"

namespace trireme::device {
namespace {

using ops::kernels::Multiply;
using ops::kernels::Table;

// The clock rate varies, and the other hyperthread of a core may be busy: the best repeat counts.
constexpr int kRepeats = 40;
constexpr double kRepeat_s = 0.002;

/// Returns the CPU time of the calling thread. Time in which another process has the core is not in
/// it.
double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Returns the best FLOP/s of several repeats on the calling thread.
double best_rate(const Table& table, Multiply what, std::int64_t rounds, int repeats) {
  double best = 0;
  for (int i = 0; i < repeats; ++i) {
    const double begin = thread_seconds();
    const double flops = table.multiply_adds(what, rounds);
    if (flops == 0) return 0;  // the instruction set has no such instruction
    best = std::max(best, flops / (thread_seconds() - begin));
  }
  return best;
}

/// Returns the sum of the best rates of the cores, measured at once because the clock rate falls
/// with the number of busy cores. One thread fills a core: it has no use for a second hyperthread.
double rate_of_cores(const Table& table, Multiply what, const std::vector<int>& cpus) {
  constexpr std::int64_t kFirstRounds = 100000;
  constexpr int kFirstRepeats = 10;
  const double flops = table.multiply_adds(what, kFirstRounds);
  if (flops == 0) return 0;
  const double rate = best_rate(table, what, kFirstRounds, kFirstRepeats);
  const auto rounds = static_cast<std::int64_t>(kFirstRounds * kRepeat_s * rate / flops);
  std::vector<double> rates(cpus.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    threads.emplace_back([&, i] {
      cpu_set_t one;
      CPU_ZERO(&one);
      CPU_SET(cpus[i], &one);
      ::sched_setaffinity(0, sizeof one, &one);  // otherwise two threads may share a core
      rates[i] = best_rate(table, what, std::max<std::int64_t>(rounds, 1), kRepeats);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

/// Returns the text that all hyperthreads of one core have in common.
std::string core_of(int cpu) {
  std::ifstream file(formatted("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu));
  std::string siblings;
  return std::getline(file, siblings) ? siblings : std::to_string(cpu);
}

}  // namespace

std::vector<int> one_cpu_per_core(std::size_t limit) {
  std::vector<int> cpus;
  std::set<std::string> cores;
  for (const int cpu : allowed_cpus()) {
    if (cpus.size() < limit && cores.insert(core_of(cpu)).second) cpus.push_back(cpu);
  }
  if (cpus.empty()) cpus.push_back(0);  // the allowed CPUs are unknown
  return cpus;
}

double cpu_register_flops(at::ScalarType compute) {
  const std::vector<int> cpus = one_cpu_per_core(static_cast<std::size_t>(at::get_num_threads()));
  const auto rate = [&](const Table& table, Multiply what) {
    return rate_of_cores(table, what, cpus);
  };
  if (compute == at::kDouble) return rate(ops::kernels::table(), Multiply::f64);
  double best = rate(ops::kernels::table(), Multiply::f32);
  if (compute != at::kBFloat16) return best;
  for (const Table* table : ops::kernels::usable_tables())
    best = std::max(best, rate(*table, Multiply::bf16_pairs));
  return best;
}

}  // namespace trireme::device
