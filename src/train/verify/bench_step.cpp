#include "train/verify/bench_step.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "comm/agree.hpp"
#include "comm/liveness/activity.hpp"
#include "comm/scalars.hpp"
#include "core/operation_record.hpp"
#include "core/timer.hpp"
#include "device/device.hpp"
#include "device/memory_count.hpp"
#include "ops/operations.hpp"
#include "train/audit/update_count.hpp"
#include "train/config/plain_ops.hpp"
#include "train/verify/trial_model.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t kWarmUpSteps = 2;

double memory_high_water(at::Device device) {
  return static_cast<double>(device::peak_memory_bytes(device));
}

/// Records the operations of this thread while this object exists, also if a step throws.
class Recording {
 public:
  explicit Recording(OperationRecord& record) : record_(record) { record_.start(); }

  Recording(const Recording&) = delete;
  Recording& operator=(const Recording&) = delete;

  ~Recording() { record_.stop(); }

 private:
  OperationRecord& record_;
};

/// The floating-point operations of this rank in several steps.
struct FlopCounts {
  double matmul = 0;
  double attention = 0;

  void add(const OperationRecord::Totals& totals) {
    for (std::size_t i = 0; i < totals.size(); ++i)
      (kStepWork[i].starts_with("attention") ? attention : matmul) += totals[i].flops;
  }
};

void take_flops(comm::Communicator& control, const FlopCounts& counts, std::int64_t steps,
                StepFigures& figures) {
  const auto mean = [&](double own) {
    return comm::all_reduce_value(control, own, comm::ReduceOp::sum, "flops") /
           static_cast<double>(steps * control.size());
  };
  figures.own_flops = (counts.matmul + counts.attention) / static_cast<double>(steps);
  figures.flops_matmul = mean(counts.matmul);
  figures.flops_attention = mean(counts.attention);
}

/// One measured step of this rank.
struct StepRecord {
  double slowest_s;  // the time of the slowest rank
  double own_s;
  OperationRecord::Totals totals;
};

/// Returns the positions of the middle step, or of the two middle steps, sorted by slowest_s.
std::vector<std::size_t> middle_steps(const std::vector<StepRecord>& steps) {
  std::vector<std::size_t> order(steps.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return steps[a].slowest_s < steps[b].slowest_s;
  });
  const std::size_t first = (order.size() - 1) / 2;
  return {order.begin() + static_cast<std::ptrdiff_t>(first),
          order.begin() + static_cast<std::ptrdiff_t>(order.size() / 2 + 1)};
}

/// Returns the work of the median step on its slowest rank. Collective.
std::vector<WorkTime> median_work(comm::Communicator& control,
                                  const std::vector<StepRecord>& steps) {
  std::vector<WorkTime> work;
  for (const std::string_view name : kStepWork) work.push_back({name});
  const std::vector<std::size_t> middle = middle_steps(steps);
  for (const std::size_t step : middle) {
    const auto own = comm::all_gather_value(control, steps[step].own_s, "step time");
    const auto slowest = std::max_element(own.begin(), own.end()) - own.begin();
    const double weight = slowest == control.rank() ? 1.0 / static_cast<double>(middle.size()) : 0;
    const auto of_slowest = [&](double value) {
      return comm::all_reduce_value(control, weight * value, comm::ReduceOp::sum, "work");
    };
    for (std::size_t i = 0; i < work.size(); ++i) {
      work[i].seconds += of_slowest(steps[step].totals[i].seconds);
      work[i].flops += of_slowest(steps[step].totals[i].flops);
    }
  }
  return work;
}

/// Sets the memory figures of the rank with the highest peak.
void take_memory(comm::Communicator& control, double before_bytes, double counted_bytes,
                 at::Device device, StepFigures& figures) {
  const auto peaks = comm::all_gather_value(control, memory_high_water(device), "memory");
  const auto most = std::max_element(peaks.begin(), peaks.end());
  const auto rank = static_cast<std::size_t>(most - peaks.begin());
  figures.mem_peak_bytes = *most;
  figures.mem_before_bytes = comm::all_gather_value(control, before_bytes, "memory")[rank];
  figures.mem_counted_bytes = comm::all_gather_value(control, counted_bytes, "memory")[rank];
}

}  // namespace

TrialShape trial_shape(const StepBench& bench) {
  const RunConfig& config = bench.config;
  TrialShape shape{config.model, config.parallel};
  shape.lora = config.lora;
  shape.seq_len = config.train.seq_len;
  shape.optim = config.optim;
  shape.dtypes = device::precision_dtypes(config.train.precision);
  shape.path = ops::path_of(config.train.fused_ops);
  shape.fp8 = config.train.fp8_mode();
  shape.device = bench.device;
  return shape;
}

std::vector<data::Batch> bench_batches(const StepBench& bench, const parallel::Mesh& mesh,
                                       std::int64_t step) {
  const TrainConfig& train = bench.config.train;
  const std::int64_t dp = mesh.size(parallel::Axis::dp);
  std::vector<data::Batch> batches;
  for (std::int64_t i = 0; i < train.accumulation; ++i) {
    std::vector<std::int64_t> samples(static_cast<std::size_t>(train.micro_batch));
    const std::int64_t number =
        (step * train.accumulation + i) * dp + mesh.rank(parallel::Axis::dp);
    std::iota(samples.begin(), samples.end(), number * train.micro_batch);
    batches.push_back(make_rows(samples, train.seq_len, bench.config.model.vocab_size));
    batches.back().update_batches = train.accumulation * dp;
    batches.back().update_samples = train.accumulation * dp * train.micro_batch;
  }
  return batches;
}

std::int64_t count_targets(comm::Communicator& control, const parallel::Mesh& mesh,
                           const std::vector<data::Batch>& batches) {
  double own = 0;
  for (const data::Batch& batch : batches) own += static_cast<double>(batch.num_targets);
  const parallel::ParallelConfig& config = mesh.config();
  return static_cast<std::int64_t>(
      comm::all_reduce_value(control, own, comm::ReduceOp::sum, "targets") /
      static_cast<double>(config.tp * config.cp * config.pp));
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

StepFigures measure_step(comm::Communicator& control, comm::Communicator& world,
                         comm::Activity& activity, const StepBench& bench) {
  const RunConfig& config = bench.config;
  ops::compute_plainly(plain_operations(config.train));
  const TrialShape shape = trial_shape(bench);
  const double before_bytes = memory_high_water(bench.device);
  const device::MemoryCount memory;
  TrialModel trial(world, shape);
  std::vector<double> step_s;
  std::vector<StepRecord> records;
  double comm_s = 0;
  double exposed_s = 0;
  FlopCounts flops;
  OperationRecord record;
  Timer clock;
  StepFigures figures;
  for (std::int64_t i = 0; i < kWarmUpSteps + bench.steps; ++i) {
    if (i == kWarmUpSteps) clock.restart();
    const std::vector<data::Batch> batches = bench_batches(bench, trial.mesh, i);
    const std::int64_t targets = count_targets(control, trial.mesh, batches);
    control.barrier();
    const double waited_before_s = activity.waited_s();
    const Timer timer;
    const UpdateResult result = [&] {
      const Recording recording(record);
      return trial.step.run(batches, targets, i + 1, i + 1, config.optim.lr);
    }();
    const double took_s = timer.seconds();  // complete: the norm has synchronized the device
    if (i < kWarmUpSteps) continue;
    flops.add(record.totals());
    step_s.push_back(comm::all_reduce_value(control, took_s, comm::ReduceOp::max, "step time"));
    records.push_back({step_s.back(), took_s, record.totals()});
    const double waited_s = activity.waited_s() - waited_before_s;
    exposed_s += waited_s;
    comm_s += waited_s + result.overlap.hidden_s();
  }
  const double clock_s =
      comm::all_reduce_value(control, clock.seconds(), comm::ReduceOp::max, "clock time");
  take_flops(control, flops, bench.steps, figures);
  figures.work = median_work(control, records);
  const double all = static_cast<double>(bench.steps) * control.size();
  figures.step_time_s = median(step_s);
  figures.comm_s = comm::all_reduce_value(control, comm_s, comm::ReduceOp::sum, "comm time") / all;
  figures.comm_exposed_s =
      comm::all_reduce_value(control, exposed_s, comm::ReduceOp::sum, "comm time") / all;
  take_memory(control, before_bytes, static_cast<double>(memory.peak_bytes()), bench.device,
              figures);
  const std::int64_t sequences =
      config.train.micro_batch * config.train.accumulation * trial.mesh.size(parallel::Axis::dp);
  const auto tokens = static_cast<double>(sequences * config.train.seq_len);
  figures.tokens_per_s = tokens / figures.step_time_s;
  figures.clock_tokens_per_s = tokens * static_cast<double>(bench.steps) / clock_s;
  if (!bench.audit) return figures;

  // With local steps, audit an update that ends with an average.
  const std::int64_t every = config.parallel.local_steps;
  const std::int64_t last = (kWarmUpSteps + bench.steps + every) / every * every - 1;
  const std::vector<data::Batch> batches = bench_batches(bench, trial.mesh, last);
  const UpdateFacts facts = facts_of(shape, trial.mesh, batches, last + 1);
  UpdateCount count(trial.step);
  const UpdateResult result = trial.step.run(batches, 1, last + 1, last + 1, config.optim.lr);
  count.end(result);
  figures.collectives = count.collectives();
  figures.formulas = collectives_formula(facts, world.rank());
  const std::string mine = differences(figures.collectives, figures.formulas);
  for (const std::string& one : comm::gather_texts(control, mine)) figures.differences += one;
  figures.differences = comm::broadcast_text(control, figures.differences);
  return figures;
}

StepCeiling measure_ceiling(comm::Communicator& control, const StepBench& bench,
                            const StepFigures& figures) {
  control.barrier();  // the clock rate of a core falls with the number of busy cores
  const double own_peak =
      device::measured_peak_flops(bench.device, trial_shape(bench).dtypes.compute);
  const double step_s = comm::all_reduce_value(control, figures.own_flops / own_peak,
                                               comm::ReduceOp::max, "step at the peak");
  StepCeiling ceiling;
  ceiling.peak_flops =
      comm::all_reduce_value(control, own_peak, comm::ReduceOp::sum, "peak") / control.size();
  ceiling.tokens_per_s = figures.tokens_per_s * figures.step_time_s / step_s;
  ceiling.share = figures.tokens_per_s / ceiling.tokens_per_s;
  return ceiling;
}

}  // namespace trireme::train
