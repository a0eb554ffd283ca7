#include "ops/cuda/report.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/process/allowed_cpus.hpp"
#include "ops/cuda/nvrtc.hpp"

namespace trireme::ops::cuda {
namespace {

/// Limits of a multiprocessor. Source: CUDA C++ Programming Guide, table "Technical Specifications
/// per Compute Capability".
struct Multiprocessor {
  int architecture;
  int warps;
  int blocks;
  std::int64_t shared_bytes;
};

constexpr std::int64_t kKiB = 1024;
constexpr std::array<Multiprocessor, 11> kMultiprocessors{{{70, 64, 32, 96 * kKiB},
                                                           {75, 32, 16, 64 * kKiB},
                                                           {80, 64, 32, 164 * kKiB},
                                                           {86, 48, 16, 100 * kKiB},
                                                           {87, 48, 16, 164 * kKiB},
                                                           {89, 48, 24, 100 * kKiB},
                                                           {90, 64, 32, 228 * kKiB},
                                                           {100, 64, 32, 228 * kKiB},
                                                           {103, 64, 32, 228 * kKiB},
                                                           {120, 48, 24, 100 * kKiB},
                                                           {121, 48, 24, 100 * kKiB}}};
constexpr int kFirstWithSpecificInstructions = 90;  // sm_90a and later
constexpr std::int64_t kRegisters = 65536;
constexpr std::int64_t kRegisterUnit = 256;     // registers of a warp are allocated in these units
constexpr std::int64_t kReservedShared = kKiB;  // by the system for each block, since sm_80
constexpr int kFirstWithReservedShared = 80;

const Multiprocessor* find_multiprocessor(int architecture) {
  const auto* const found =
      std::ranges::find(kMultiprocessors, architecture, &Multiprocessor::architecture);
  return found == kMultiprocessors.end() ? nullptr : found;
}

/// Returns the number right before `text` in the log: 32 for " registers" in "Used 32 registers".
std::optional<std::int64_t> number_before(const std::string& log, std::string_view text) {
  const std::size_t end = log.find(text);
  if (end == std::string::npos) return std::nullopt;
  const std::size_t space = log.find_last_not_of("0123456789", end - 1);
  const std::size_t begin = space == std::string::npos ? 0 : space + 1;
  std::int64_t value = 0;
  const auto result = std::from_chars(log.data() + begin, log.data() + end, value);
  return result.ec == std::errc{} ? std::optional(value) : std::nullopt;
}

struct Job {
  const Kernel* kernel;
  Element element;
  std::string architecture;
};

KernelFigures run_job(const Job& job) {
  const Compiled compiled = compile(*job.kernel, job.element, job.architecture);
  KernelFigures figures = figures_of_log(compiled.log);
  figures.name = formatted("{}<{}>", job.kernel->name, element_name(job.element));
  figures.architecture = job.architecture;
  figures.cubin_bytes = static_cast<std::int64_t>(compiled.cubin.size());
  figures.occupancy = occupancy_of(job.architecture, job.kernel->max_threads, figures.registers,
                                   figures.shared_bytes);
  return figures;
}

int number_of(const std::string& architecture) {
  int number = 0;
  constexpr std::size_t kPrefix = 3;  // "sm_"
  std::from_chars(architecture.data() + kPrefix, architecture.data() + architecture.size(), number);
  return number;
}

}  // namespace

std::vector<std::string> report_architectures() {
  std::vector<std::string> all;
  for (const int one : nvrtc_architectures()) {
    if (find_multiprocessor(one) == nullptr) continue;
    all.push_back(formatted("sm_{}", one));
    if (one >= kFirstWithSpecificInstructions) all.push_back(formatted("sm_{}a", one));
  }
  return all;
}

double occupancy_of(const std::string& architecture, int threads, std::int64_t registers,
                    std::int64_t shared_bytes) {
  const int number = number_of(architecture);
  const Multiprocessor* const limits = find_multiprocessor(number);
  TRIREME_ASSERT(limits != nullptr);
  const std::int64_t warps = (threads + 31) / 32;
  const std::int64_t warp_registers =
      (std::max<std::int64_t>(registers, 1) * 32 + kRegisterUnit - 1) / kRegisterUnit *
      kRegisterUnit;
  const std::int64_t shared =
      shared_bytes + (number >= kFirstWithReservedShared ? kReservedShared : 0);
  std::int64_t blocks = std::min<std::int64_t>(limits->blocks, limits->warps / warps);
  blocks = std::min(blocks, kRegisters / warp_registers / warps);
  if (shared > 0) blocks = std::min(blocks, limits->shared_bytes / shared);
  return static_cast<double>(blocks * warps) / limits->warps;
}

KernelFigures figures_of_log(const std::string& log) {
  const auto registers = number_before(log, " registers");
  const auto stores = number_before(log, " bytes spill stores");
  const auto loads = number_before(log, " bytes spill loads");
  if (!registers || !stores || !loads)
    fail(ErrorKind::internal, "the log of NVRTC has no report of ptxas:\n{}", log);
  KernelFigures figures;
  figures.registers = *registers;
  figures.spill_bytes = *stores + *loads;
  figures.shared_bytes = number_before(log, " bytes smem").value_or(0);
  return figures;
}

std::vector<KernelFigures> figures(const std::vector<std::string>& architectures) {
  const std::vector<std::string> allowed = report_architectures();
  for (const std::string& one : architectures) {
    if (std::ranges::find(allowed, one) == allowed.end())
      fail(ErrorKind::usage, "--arch {}, must be one or several of {}", one, joined(allowed, ", "));
  }
  std::vector<Job> jobs;
  for (const std::string& architecture : architectures) {
    for (const Kernel* kernel : all_kernels()) {
      for (const Element element : kElements) {
        if (!kernel->fp32_only || element == Element::f32)
          jobs.push_back({kernel, element, architecture});
      }
    }
  }
  std::vector<KernelFigures> results(jobs.size());
  std::atomic<std::size_t> next{0};
  std::exception_ptr error;
  std::mutex mutex;
  const auto work = [&] {
    for (std::size_t i = next++; i < jobs.size(); i = next++) {
      try {
        results[i] = run_job(jobs[i]);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!error) error = std::current_exception();
        return;
      }
    }
  };
  std::vector<std::jthread> threads;
  const auto cpus = std::max<std::size_t>(allowed_cpus().size(), 1);
  for (std::size_t i = 1; i < std::min(cpus, jobs.size()); ++i) threads.emplace_back(work);
  work();
  threads.clear();  // waits
  if (error) std::rethrow_exception(error);
  return results;
}

}  // namespace trireme::ops::cuda
