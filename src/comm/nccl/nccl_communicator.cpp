#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string_view>

#include "comm/nccl/nccl_backend.hpp"
#include "comm/nccl/nccl_handles.hpp"
#include "comm/nccl/nccl_ranks.hpp"
#include "core/log.hpp"
#include "core/named_range.hpp"

namespace trireme::comm {
namespace {

ncclRedOp_t nccl_op(ReduceOp op) {
  constexpr std::array kOps{ncclSum, ncclMax, ncclMin};
  return kOps[static_cast<std::size_t>(op)];
}

/// Returns nullopt for 16-bit integers, which NCCL does not support.
std::optional<ncclDataType_t> nccl_type(DType dtype) {
  constexpr std::array<std::optional<ncclDataType_t>, 12> kTypes{
      ncclFloat64,  ncclFloat32, ncclBfloat16, ncclFloat16, ncclInt64,    ncclInt32,
      std::nullopt, ncclInt8,    ncclUint64,   ncclUint32,  std::nullopt, ncclUint8};
  return kTypes[static_cast<std::size_t>(dtype)];
}

/// A collective on the device. wait() makes the caller's stream wait for the collective; the host
/// does not block.
class NcclWork final : public Work {
 public:
  NcclWork(std::shared_ptr<NcclContext> context, Call call, Stream stream,
           std::shared_ptr<CommEvent> done)
      : context_(std::move(context)),
        call_(std::move(call)),
        stream_(static_cast<cudaStream_t>(stream.handle)),
        done_(std::move(done)) {}

  NcclWork(const NcclWork&) = delete;
  NcclWork& operator=(const NcclWork&) = delete;

  ~NcclWork() override {
    // The caller's stream uses the buffers next, so order it after the collective.
    if (!waited_) context_->api.stream_wait_event(stream_, done_->get(), 0);
  }

  bool poll() override {
    if (!done_->reached()) return false;
    call_.complete();
    return true;
  }

  void wait() override {
    if (waited_) return;
    const NamedRange range(Phase::communication,
                           [this] { return cat("wait for ", call_.title()); });
    check_cuda(context_->api, context_->api.stream_wait_event(stream_, done_->get(), 0),
               call_.what);
    waited_ = true;
  }

 private:
  const std::shared_ptr<NcclContext> context_;
  const Call call_;
  const cudaStream_t stream_;
  const std::shared_ptr<CommEvent> done_;
  bool waited_ = false;
};

class NcclCommunicator final : public BaseCommunicator {
 public:
  NcclCommunicator(std::shared_ptr<NcclContext> context, std::unique_ptr<Communicator> bootstrap,
                   CommOptions options)
      : BaseCommunicator(bootstrap->name(), bootstrap->rank(), bootstrap->size(),
                         std::move(options)),
        context_(std::move(context)),
        api_(context_->api),
        bootstrap_(std::move(bootstrap)),
        ranks_(share_ranks(context_, *bootstrap_)) {}

  [[nodiscard]] const char* backend() const override { return "nccl"; }

  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    auto group = bootstrap_->split(color, key, name);
    if (!group) return nullptr;
    return std::make_unique<NcclCommunicator>(context_, std::move(group), options());
  }

 protected:
  [[nodiscard]] bool supports(DType dtype, ReduceOp op) const override {
    return BaseCommunicator::supports(dtype, op) && nccl_type(dtype).has_value();
  }

  /// The device sends the messages, so they cannot be counted here. A group of one rank sends
  /// nothing.
  [[nodiscard]] bool counts_sends(std::string_view) const override { return size() == 1; }

  WorkPtr start_all_reduce(Call call, const Reduction& request) override {
    const NcclLane& lane = ranks_->reductions(*bootstrap_);
    return launch(lane, std::move(call), request.stream, [&](const Call& now) {
      if (size() == 1) return copy(lane, now, request.output, request.input, request.bytes());
      check_nccl(
          api_,
          api_.all_reduce(request.input, request.output, request.count, *nccl_type(request.dtype),
                          nccl_op(request.op), lane.comm(), lane.stream()),
          now.what);
    });
  }

  WorkPtr start_reduce_scatter(Call call, const Reduction& request) override {
    const NcclLane& lane = ranks_->reductions(*bootstrap_);
    return launch(lane, std::move(call), request.stream, [&](const Call& now) {
      if (size() == 1) return copy(lane, now, request.output, request.input, request.bytes());
      check_nccl(api_,
                 api_.reduce_scatter(request.input, request.output, request.count,
                                     *nccl_type(request.dtype), nccl_op(request.op), lane.comm(),
                                     lane.stream()),
                 now.what);
    });
  }

  WorkPtr start_all_gather(Call call, const AllGather& request) override {
    const NcclLane& lane = ranks_->gathers();
    return launch(lane, std::move(call), request.stream, [&](const Call& now) {
      if (size() == 1) return copy(lane, now, request.output, request.input, request.bytes());
      check_nccl(api_,
                 api_.all_gather(request.input, request.output, request.bytes(), ncclUint8,
                                 lane.comm(), lane.stream()),
                 now.what);
    });
  }

  WorkPtr start_broadcast(Call call, const Broadcast& request) override {
    const NcclLane& lane = ranks_->gathers();
    return launch(lane, std::move(call), request.stream, [&](const Call& now) {
      if (size() == 1) return;
      check_nccl(api_,
                 api_.broadcast(request.data, request.data, request.bytes(), ncclUint8,
                                request.root, lane.comm(), lane.stream()),
                 now.what);
    });
  }

  WorkPtr start_exchange(Call call, const Exchange& request) override {
    const SortedMessages sorted = sort_messages(call, rank(), request);
    const NcclLane& lane = ranks_->gathers();
    return launch(lane, std::move(call), request.stream, [&](const Call& now) {
      for (const auto& own : sorted.own) copy(lane, now, own.to, own.from, own.bytes);
      if (size() == 1) return;
      check_nccl(api_, api_.group_start(), now.what);
      ncclResult_t result = ncclSuccess;  // the NCCL group must be closed even after an error
      const auto note = [&](ncclResult_t code) { result = result == ncclSuccess ? code : result; };
      for (const auto& m : sorted.sends) {
        if (m.bytes == 0) continue;
        note(api_.send(m.data, m.bytes, ncclUint8, m.peer, lane.comm(), lane.stream()));
      }
      for (const auto& m : sorted.receives) {
        if (m.bytes == 0) continue;
        note(api_.recv(m.data, m.bytes, ncclUint8, m.peer, lane.comm(), lane.stream()));
      }
      note(api_.group_end());
      check_nccl(api_, result, now.what);
    });
  }

  WorkPtr start_barrier(Call call) override {
    bootstrap_->barrier();
    call.complete();
    return std::make_unique<DoneWork>();
  }

 private:
  void copy(const NcclLane& lane, const Call& call, void* to, const void* from,
            std::uint64_t bytes) const {
    if (to == from || bytes == 0) return;
    check_cuda(api_, api_.memcpy_async(to, from, bytes, cudaMemcpyDeviceToDevice, lane.stream()),
               call.what);
  }

  /// Starts a collective on the lane. It waits for all work that is already queued on the caller's
  /// stream. The returned Work makes later work of the caller's stream wait for the collective.
  template <class Enqueue>
  WorkPtr launch(const NcclLane& lane, Call call, Stream stream, const Enqueue& enqueue) {
    check_cuda(api_, api_.set_device(context_->device), call.what);
    const CommEvent ready(api_);
    ready.record(static_cast<cudaStream_t>(stream.handle), call.what);
    check_cuda(api_, api_.stream_wait_event(lane.stream(), ready.get(), 0), call.what);
    auto done = std::make_shared<CommEvent>(api_);
    enqueue(call);
    done->record(lane.stream(), call.what);
    if (lane.comm() != nullptr) context_->watch.add(lane.comm(), call, done);
    return std::make_unique<NcclWork>(context_, std::move(call), stream, std::move(done));
  }

  const std::shared_ptr<NcclContext> context_;
  const NcclApi& api_;
  const std::unique_ptr<Communicator> bootstrap_;
  const std::shared_ptr<NcclRanks> ranks_;
};

/// Makes the kernels of several communicators start on the device in the same order on all ranks.
/// Otherwise kernels that wait for each other can occupy the whole device (deadlock). The contract
/// of communicator.hpp makes the order on the host equal on all ranks, and NCCL 2.26 and later can
/// keep this order on the device. If the user has set the variable, its value stays.
///
/// In this order, a kernel starts after all earlier kernels have started, also those of other
/// communicators (NCCL's enqueue.cc, ncclLaunchPrepare()). Two receives on one lane then block a
/// later send until the first message has arrived, which may depend on that send.
void choose_launch_order(bool wanted) {
  constexpr const char* kVariable = "NCCL_LAUNCH_ORDER_IMPLICIT";
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (wanted) {
    ::setenv(kVariable, "1", /*overwrite=*/0);
  } else if (const char* set = std::getenv(kVariable); set != nullptr && std::string(set) != "0") {
    log::warn(formatted("{} = {} can stop pipeline parallelism forever: unset it", kVariable, set));
  }
}

/// Returns the local rank modulo the number of visible devices. This works if every task sees all
/// GPUs of the node, and also if each task sees one GPU.
int choose_device(const NcclApi& api, const LaunchInfo& launch) {
  int count = 0;
  check_cuda(api, api.device_count(&count), "cudaGetDeviceCount");
  if (count == 0)
    fail(ErrorKind::resource,
         "comm backend 'nccl': no GPU is visible to rank {} on {} (CUDA_VISIBLE_DEVICES, --gres)",
         launch.rank, launch.hostname);
  return launch.local_rank % count;
}

std::string bus_id(const NcclApi& api, int device) {
  std::array<char, 32> text{};
  check_cuda(api, api.device_pci_bus_id(text.data(), static_cast<int>(text.size()) - 1, device),
             formatted("PCI bus id of device {}", device));
  return text.data();
}

/// The GpuUse of one rank in a fixed size, for one all_gather.
struct PackedUse {
  std::int32_t node;
  std::int32_t num_visible;
  std::array<char, 64> hostname;
  std::array<char, 32> used;
  std::array<std::array<char, 32>, 16> visible;
};

std::vector<GpuUse> gather_gpus(const NcclApi& api, const LaunchInfo& launch, int device,
                                Communicator& bootstrap) {
  PackedUse mine{};
  mine.node = launch.node;
  launch.hostname.copy(mine.hostname.data(), mine.hostname.size() - 1);
  bus_id(api, device).copy(mine.used.data(), mine.used.size() - 1);
  int count = 0;
  check_cuda(api, api.device_count(&count), "cudaGetDeviceCount");
  mine.num_visible = std::min<int>(count, static_cast<int>(mine.visible.size()));
  for (int i = 0; i < mine.num_visible; ++i) {
    auto& text = mine.visible[static_cast<std::size_t>(i)];
    bus_id(api, i).copy(text.data(), text.size() - 1);
  }
  std::vector<PackedUse> all(static_cast<std::size_t>(bootstrap.size()));
  bootstrap
      .all_gather({.input = &mine,
                   .output = all.data(),
                   .count = sizeof mine,
                   .dtype = DType::u8,
                   .tag = "GPU bus ids"})
      ->wait();
  std::vector<GpuUse> uses;
  for (const auto& packed : all) {
    GpuUse use{packed.node, packed.hostname.data(), packed.used.data(), {}};
    for (int i = 0; i < packed.num_visible; ++i)
      use.visible.emplace_back(packed.visible[static_cast<std::size_t>(i)].data());
    uses.push_back(std::move(use));
  }
  return uses;
}

std::unique_ptr<Communicator> make_real(const LaunchInfo& launch, const CommOptions& options) {
  return make_nccl_world(real_nccl_api(), launch, make_world("auto", launch, options), options);
}

constexpr std::array<CommBackend, 1> kBackends{
    {{"nccl", "NVIDIA GPUs, bootstrapped over MPI", make_real}}};

}  // namespace

std::span<const CommBackend> nccl_backends() {
  return kBackends;
}

std::unique_ptr<Communicator> make_nccl_world(const NcclApi& api, const LaunchInfo& launch,
                                              std::unique_ptr<Communicator> bootstrap,
                                              const CommOptions& options) {
  choose_launch_order(options.launch_order);
  const int device = choose_device(api, launch);
  const GpuReport report = compare_gpus(gather_gpus(api, launch, device, *bootstrap));
  if (!report.shared.empty()) {
    fail(
        ErrorKind::resource,
        "comm backend 'nccl' needs a GPU for every rank: {}; start fewer ranks per node, or show each task its own GPU",
        report.shared);
  }
  if (!report.idle.empty() && launch.rank == 0) log::warn(report.idle);
  check_cuda(api, api.set_device(device), formatted("cudaSetDevice {}", device));
  auto context = std::make_shared<NcclContext>(api, device, bootstrap->rank());
  return std::make_unique<NcclCommunicator>(std::move(context), std::move(bootstrap), options);
}

}  // namespace trireme::comm
