#include "comm/nccl/nccl_api.hpp"

namespace trireme::comm {

const NcclApi& real_nccl_api() {
  static const NcclApi api{
      ncclGetUniqueId,
      ncclCommInitRank,
      ncclCommDestroy,
      ncclCommAbort,
      ncclCommGetAsyncError,
      ncclGetErrorString,
      ncclAllReduce,
      ncclReduceScatter,
      ncclAllGather,
      ncclBroadcast,
      ncclSend,
      ncclRecv,
      ncclGroupStart,
      ncclGroupEnd,
      cudaGetErrorString,
      cudaGetDeviceCount,
      cudaSetDevice,
      cudaDeviceGetPCIBusId,
      cudaDeviceGetStreamPriorityRange,
      cudaStreamCreateWithPriority,
      cudaStreamDestroy,
      cudaStreamWaitEvent,
      [](cudaEvent_t* event, unsigned flags) { return cudaEventCreateWithFlags(event, flags); },
      cudaEventDestroy,
      [](cudaEvent_t event, cudaStream_t stream) { return cudaEventRecord(event, stream); },
      cudaEventQuery,
      [](void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
        return cudaMemcpyAsync(to, from, bytes, kind, stream);
      },
  };
  return api;
}

}  // namespace trireme::comm
