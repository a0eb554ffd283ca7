#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "bin/trireme/commands.hpp"
#include "bin/trireme/print_figures.hpp"
#include "core/problems.hpp"
#include "device/device.hpp"
#include "train/verify/bench_matmul.hpp"

namespace trireme {
namespace {

struct BenchMatmulSettings {
  train::ProductShape shape;
  std::string precision = "bf16";
  std::int64_t threads = 0;
  double seconds = 0.3;
  bool json = false;
};

constexpr std::int64_t kMostSize = 1 << 20;
constexpr double kMostElements = 1e9;

void check(const BenchMatmulSettings& settings) {
  Problems problems;
  const auto [m, n, k] = settings.shape;
  for (const auto& [option, value] : {std::pair{"--m", m}, {"--n", n}, {"--k", k}})
    if (value < 1 || value > kMostSize)
      problems.add(option, value, formatted("must be in [1, {}]", kMostSize));
  if (settings.threads < 0) problems.add("--threads", settings.threads, "must be 0 or more");
  if (!(settings.seconds > 0) || settings.seconds > 60)
    problems.add("--seconds", settings.seconds, "must be above 0 and at most 60");
  problems.throw_if_any();
  const auto elements = [](std::int64_t rows, std::int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns);
  };
  if (std::max({elements(m, k), elements(n, k), elements(m, n)}) > kMostElements)
    fail(ErrorKind::usage,
         "--m {}, --n {} and --k {} need a matrix of more than 1e9 elements. Choose smaller sizes.",
         m, n, k);
}

int run(const BenchMatmulSettings& settings) {
  check(settings);
  const std::int64_t threads = device::set_cpu_threads(settings.threads, 1);
  const train::ProductFigures figures =
      train::measure_products(settings.shape, settings.precision, settings.seconds);
  const auto giga = [](double flops) { return flops / 1e9; };
  const train::ProductRates& library = figures.library;
  const Json json{{"m", settings.shape.m},
                  {"n", settings.shape.n},
                  {"k", settings.shape.k},
                  {"precision", settings.precision},
                  {"threads", threads},
                  {"processor", device::device_name(at::kCPU)},
                  {"forward_gflops", giga(figures.own.forward)},
                  {"dx_gflops", giga(figures.own.dx)},
                  {"dw_gflops", giga(figures.own.dw)},
                  {"library_gflops", {giga(library.forward), giga(library.dx), giga(library.dw)}},
                  {"peak_gflops", giga(figures.peak_flops)}};
  return print_figures(json, settings.json);
}

}  // namespace

void add_bench_matmul_command(config::CommandLine& line) {
  const auto settings = std::make_shared<BenchMatmulSettings>();
  line.command("bench matmul",
               "measure the matrix products of one linear layer on the CPU: forward, dX and dW")
      .option("--m", &settings->shape.m, "N", "number of rows (tokens)")
      .option("--n", &settings->shape.n, "N", "number of outputs")
      .option("--k", &settings->shape.k, "N", "number of inputs")
      .option("--precision", &settings->precision, "NAME",
              "dtype of the factors: fp32, bf16, fp16 or fp64")
      .option("--threads", &settings->threads, "N", "CPU threads; 0: OMP_NUM_THREADS or all cores")
      .option("--seconds", &settings->seconds, "S", "measured time of each product")
      .flag("--json", settings->json, "print one JSON document on one line instead of a table")
      .example("trireme bench matmul --m 2048 --n 1536 --k 512 --precision bf16 --json")
      .run([settings] { return run(*settings); });
}

}  // namespace trireme
