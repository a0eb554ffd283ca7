#include "device/captured_work.hpp"

#ifdef TRIREME_HAVE_CUDA
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#endif

#include <atomic>
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

/// While it exists, the allocator takes memory for one stream from a pool, which the pool keeps
/// until release_pool().
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

struct CapturedWork::Graph {
  Graph(at::Device on, c10::MempoolId_t from) : device(on), pool(from) {}

  ~Graph() {
    executable.reset();
    if (owns_pool) allocator::releasePool(device.index(), pool);
  }

  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  void capture(const std::function<void()>& work) {
    const c10::cuda::CUDAStream before = c10::cuda::getCurrentCUDAStream(device.index());
    const c10::cuda::CUDAStream stream =
        c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index());
    wait_for(before, stream);
    {
      const c10::cuda::CUDAStreamGuard guard(stream);
      const PoolScope scope(stream, pool);
      owns_pool = true;
      const UniqueHandle<GraphTraits> graph = record(stream, work);
      cudaGraphExec_t raw = nullptr;
      C10_CUDA_CHECK(cudaGraphInstantiate(&raw, graph.get(), 0));
      executable.reset(raw);
    }
    wait_for(stream, before);
  }

  void launch() const {
    C10_CUDA_CHECK(cudaGraphLaunch(executable.get(),
                                   c10::cuda::getCurrentCUDAStream(device.index()).stream()));
  }

  at::Device device;
  c10::MempoolId_t pool;
  bool owns_pool = false;
  UniqueHandle<ExecutableTraits> executable;
};

#else

struct CapturedWork::Graph {
  void launch() const {}
};

#endif

CapturedWork::CapturedWork(at::Device device, std::int64_t pool, std::function<void()> work)
    : work_(std::move(work)) {
#ifdef TRIREME_HAVE_CUDA
  if (device.is_cuda()) {
    graph_ = std::make_unique<Graph>(
        device, c10::MempoolId_t{static_cast<c10::CaptureId_t>(pool), c10::CaptureId_t{0}});
    graph_->capture(work_);
  }
#else
  (void)pool;
  TRIREME_ASSERT(!device.is_cuda());
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

std::int64_t CapturedWork::new_pool() {
  // The allocator's other users of this number count from 1.
  static std::atomic<std::int64_t> next{std::int64_t{1} << 32};
  return next++;
}

}  // namespace trireme::device
