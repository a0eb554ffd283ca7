#include "train/profile/step_profile.hpp"

#include <ATen/record_function.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>

#include "comm/agree.hpp"
#include "core/files/file.hpp"
#include "core/log.hpp"
#include "job/run_directory.hpp"

namespace trireme::train {
namespace {

namespace kineto = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;

/// The most columns of the printed table; phases.json of each rank has all values.
constexpr std::size_t kMostColumns = 8;

}  // namespace

/// The trace of the calling thread, recorded by Kineto. The ranges are also NVTX ranges on a GPU.
class StepProfile::Trace {
 public:
  explicit Trace(at::Device device) : has_gpu_(device.is_cuda()) {
    // Kineto writes to standard error that a machine has no GPU. It reads this variable once.
    ::setenv("KINETO_LOG_LEVEL", "6", /*overwrite=*/0);
    std::set<ActivityType> activities{ActivityType::CPU};
    if (has_gpu_) activities.insert(ActivityType::CUDA);
    const torch::profiler::impl::ProfilerConfig config(torch::profiler::impl::ProfilerState::KINETO,
                                                       /*report_input_shapes=*/true);
    kineto::prepareProfiler(config, activities);
    kineto::enableProfiler(config, activities);
  }

  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  ~Trace() {
    if (!is_stopped_) (void)stop();
  }

  void begin(const std::string& name) {
    ranges_.push_back(std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE));
    if (ranges_.back()->isActive()) ranges_.back()->before(name);
    if (has_gpu_) torch::profiler::impl::cudaStubs()->rangePush(name.c_str());
  }

  void end() {
    if (ranges_.empty()) return;
    ranges_.pop_back();
    if (has_gpu_) torch::profiler::impl::cudaStubs()->rangePop();
  }

  std::shared_ptr<kineto::ProfilerResult> stop() {
    is_stopped_ = true;
    while (!ranges_.empty()) end();
    return kineto::disableProfiler();
  }

 private:
  bool has_gpu_;
  bool is_stopped_ = false;
  std::vector<std::unique_ptr<at::RecordFunction>> ranges_;
};

StepProfile::StepProfile(std::filesystem::path folder, comm::Communicator& world, at::Device device,
                         WriterThread& files)
    : folder_(std::move(folder)), world_(world), device_(device), files_(files) {}

StepProfile::~StepProfile() {
  if (range_observer == this) range_observer = nullptr;
}

bool StepProfile::request(const ProfileRequest& request, std::int64_t done_step) {
  if (request_) return false;
  if (request.last_step > done_step) request_ = request;
  return true;
}

double StepProfile::now_s() const {
  if (device_.is_cuda())
    c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).synchronize();
  return timer_.seconds();
}

void StepProfile::step_ended(std::int64_t step) {
  done_step_ = step;
  if (!request_) return;
  if (times_) {
    trace_->end();  // the range of this step
    times_->end_step(now_s());
  }
  if (active_ && step >= request_->last_step) return stop();
  if (!active_ && step + 1 >= request_->first_step) start(step + 1);
  if (times_) trace_->begin(formatted("step {}", step + 1));
}

void StepProfile::start(std::int64_t first_step) {
  active_ = true;
  first_step_ = first_step;
  if (!request_->has_rank(world_.rank())) return;
  trace_ = std::make_unique<Trace>(device_);
  range_observer = this;
  times_.emplace().start(first_step, now_s());
}

void StepProfile::stop() {
  if (range_observer == this) range_observer = nullptr;
  const std::filesystem::path place = folder_ / formatted("steps-{}-{}", first_step_, done_step_);
  std::string mine;
  if (times_ && !times_->empty()) {
    const Json phases = times_->to_json(world_.rank());
    mine = phases.dump();
    files_.post_inexact(
        [place, mine, rank = world_.rank(), trace = std::shared_ptr(trace_->stop())] {
          const auto error = comm::capture([&] {
            std::filesystem::create_directories(place);
            const std::filesystem::path file = place / job::rank_file(rank, ".trace.json");
            trace->save(file.string());
            if (!std::filesystem::exists(file))
              fail(ErrorKind::resource, "Kineto could not write {}", file.string());
            write_file_atomic(place / job::rank_file(rank, ".phases.json"), mine + "\n");
          });
          if (error) log::warn(formatted("the profile is not complete: {}", error->what()));
        });
  }
  times_.reset();
  trace_.reset();
  request_.reset();
  active_ = false;

  std::vector<Json> ranks;
  for (const std::string& text : comm::gather_texts(world_, mine)) {
    if (!text.empty() && ranks.size() < kMostColumns)
      ranks.push_back(parse_json(text, "phases of a rank"));
  }
  if (ranks.empty()) return;
  const std::string table = cat(formatted("profile of steps {} to {}", first_step_, done_step_),
                                "\n", phase_table(ranks));
  log::info(cat(table, "\ntraces (open them at https://ui.perfetto.dev): ", place.string()));
  files_.post_inexact([place, table] {
    const auto error = comm::capture([&] {
      std::filesystem::create_directories(place);
      write_file_atomic(place / "phases.txt", table + "\n");
    });
    if (error) log::warn(formatted("the profile is not complete: {}", error->what()));
  });
}

void StepProfile::finish() {
  if (active_) stop();
}

void StepProfile::begin(Phase phase, const std::string& name) {
  times_->begin(phase, times_->begin_changes(phase) ? now_s() : timer_.seconds());
  trace_->begin(name);
}

void StepProfile::end() {
  trace_->end();
  times_->end(times_->end_changes() ? now_s() : timer_.seconds());
}

}  // namespace trireme::train
