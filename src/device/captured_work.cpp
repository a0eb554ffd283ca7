#include "device/captured_work.hpp"

#include <ATen/ATen.h>

#ifdef TRIREME_HAVE_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "core/error.hpp"
#include "core/unique_handle.hpp"

namespace trireme::device {

#ifdef TRIREME_HAVE_CUDA

// Not in an anonymous namespace, because CapturedWork::Graph has members of these types.
struct GraphTraits {
  using Raw = cudaGraph_t;

  static Raw null() noexcept { return nullptr; }

  static void close(Raw graph) noexcept { (void)cudaGraphDestroy(graph); }
};

struct ExecutableTraits {
  using Raw = cudaGraphExec_t;

  static Raw null() noexcept { return nullptr; }

  static void close(Raw graph) noexcept { (void)cudaGraphExecDestroy(graph); }
};

namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

/// Makes `later` wait for the work that `earlier` has so far.
void wait_for(c10::cuda::CUDAStream earlier, c10::cuda::CUDAStream later) {
  cudaEvent_t event = nullptr;
  C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  C10_CUDA_CHECK(cudaEventRecord(event, earlier.stream()));
  C10_CUDA_CHECK(cudaStreamWaitEvent(later.stream(), event, 0));
  C10_CUDA_CHECK(cudaEventDestroy(event));  // CUDA frees it when the work is complete
}

/// Serializes all captures of this process, because they use one stream for each GPU.
std::mutex capturing;

/// Returns the stream on which all work for a GPU is captured. cuBLAS has a workspace of some
/// megabytes for each stream, which lives until the process ends.
c10::cuda::CUDAStream capture_stream(c10::DeviceIndex index) {
  static std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  const std::lock_guard lock(capturing);
  const auto found = streams.find(index);
  if (found != streams.end()) return found->second;
  return streams.emplace(index, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, index))
      .first->second;
}

/// Makes the cuBLAS workspace of this thread for the current stream. If a capture made it, it would
/// hold memory of the pool for as long as the process runs.
void allocate_workspace(c10::DeviceIndex index) {
  const at::NoGradGuard no_grad;
  const at::Tensor small = at::zeros({16, 16}, at::Device(at::kCUDA, index));
  (void)at::mm(small, small);
}

/// Returns a pool of the allocator that nothing else uses.
c10::MempoolId_t new_pool() {
  // The allocator's other users of this number count from 1.
  static std::atomic<std::int64_t> next{std::int64_t{1} << 32};
  return {static_cast<c10::CaptureId_t>(next++), c10::CaptureId_t{0}};
}

/// While it exists, the allocator takes memory for one stream from a pool. The constructor adds a
/// user to the pool, which keeps its memory until releasePool() was called for each user.
class PoolScope {
 public:
  PoolScope(c10::cuda::CUDAStream stream, c10::MempoolId_t pool)
      : device_(stream.device_index()), pool_(pool) {
    allocator::beginAllocateToPool(
        device_, pool, [raw = stream.stream()](cudaStream_t one) { return one == raw; });
  }

  ~PoolScope() { allocator::endAllocateToPool(device_, pool_); }

  PoolScope(const PoolScope&) = delete;
  PoolScope& operator=(const PoolScope&) = delete;

 private:
  c10::DeviceIndex device_;
  c10::MempoolId_t pool_;
};

/// Records `work` on `stream`. Only the calling thread is restricted during the capture: other
/// threads may allocate and copy.
UniqueHandle<GraphTraits> record(c10::cuda::CUDAStream stream, const std::function<void()>& work) {
  cudaGraph_t raw = nullptr;
  C10_CUDA_CHECK(cudaStreamBeginCapture(stream.stream(), cudaStreamCaptureModeThreadLocal));
  try {
    work();
  } catch (...) {
    (void)cudaStreamEndCapture(stream.stream(), &raw);
    const UniqueHandle<GraphTraits> incomplete(raw);
    (void)cudaGetLastError();  // the error of the capture must not appear in the next call
    throw;
  }
  C10_CUDA_CHECK(cudaStreamEndCapture(stream.stream(), &raw));
  return UniqueHandle<GraphTraits>(raw);
}

}  // namespace

struct CapturePool::Memory {
  explicit Memory(c10::DeviceIndex index) : stream(capture_stream(index)) {
    const PoolScope first_user(stream, id);
  }

  ~Memory() { release(); }

  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  /// Must be called once for each PoolScope.
  void release() const { allocator::releasePool(stream.device_index(), id); }

  c10::cuda::CUDAStream stream;
  c10::MempoolId_t id = new_pool();
};

struct CapturedWork::Graph {
  explicit Graph(std::shared_ptr<CapturePool> from) : pool(std::move(from)) {}

  ~Graph() {
    executable.reset();
    if (uses_memory) pool->memory_->release();
  }

  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void capture(const std::function<void()>& work) {
    const CapturePool::Memory& memory = *pool->memory_;
    const c10::cuda::CUDAStream stream = memory.stream;
    const c10::cuda::CUDAStream before = c10::cuda::getCurrentCUDAStream(stream.device_index());
    const std::lock_guard lock(capturing);
    wait_for(before, stream);
    {
      const c10::cuda::CUDAStreamGuard guard(stream);
      allocate_workspace(stream.device_index());
      const PoolScope scope(stream, memory.id);
      uses_memory = true;
      const UniqueHandle<GraphTraits> graph = record(stream, work);
      cudaGraphExec_t raw = nullptr;
      C10_CUDA_CHECK(cudaGraphInstantiate(&raw, graph.get(), 0));
      executable.reset(raw);
    }
    wait_for(stream, before);
  }

  void launch() const {
    const c10::DeviceIndex index = pool->device().index();
    C10_CUDA_CHECK(
        cudaGraphLaunch(executable.get(), c10::cuda::getCurrentCUDAStream(index).stream()));
  }

  std::shared_ptr<CapturePool> pool;
  bool uses_memory = false;
  UniqueHandle<ExecutableTraits> executable;
};

#else

struct CapturePool::Memory {};

struct CapturedWork::Graph {
  void launch() const {}
};

#endif

CapturePool::CapturePool(at::Device device) : device_(device) {
#ifdef TRIREME_HAVE_CUDA
  if (device.is_cuda()) memory_ = std::make_unique<Memory>(device.index());
#else
  TRIREME_ASSERT(!device.is_cuda());
#endif
}

CapturePool::~CapturePool() = default;

CapturedWork::CapturedWork(std::shared_ptr<CapturePool> pool, std::function<void()> work)
    : work_(std::move(work)) {
#ifdef TRIREME_HAVE_CUDA
  if (pool->device().is_cuda()) {
    graph_ = std::make_unique<Graph>(std::move(pool));
    graph_->capture(work_);
  }
#else
  (void)pool;
#endif
}

CapturedWork::CapturedWork(CapturedWork&&) noexcept = default;
CapturedWork& CapturedWork::operator=(CapturedWork&&) noexcept = default;
CapturedWork::~CapturedWork() = default;

void CapturedWork::launch() {
  if (graph_) {
    graph_->launch();
  } else {
    work_();
  }
}

}  // namespace trireme::device
