#pragma once
#include <cuda_runtime_api.h>
#include <nccl.h>

/// The functions of libnccl and the CUDA runtime that this backend calls, named without prefix. A
/// test without a GPU replaces them by stand-ins.
namespace trireme::comm {

struct NcclApi {
  decltype(&::ncclGetUniqueId) get_unique_id;
  decltype(&::ncclCommInitRank) comm_init_rank;
  decltype(&::ncclCommDestroy) comm_destroy;
  decltype(&::ncclCommAbort) comm_abort;
  decltype(&::ncclCommGetAsyncError) comm_get_async_error;
  decltype(&::ncclGetErrorString) get_error_string;
  decltype(&::ncclAllReduce) all_reduce;
  decltype(&::ncclReduceScatter) reduce_scatter;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclBroadcast) broadcast;
  decltype(&::ncclSend) send;
  decltype(&::ncclRecv) recv;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;

  decltype(&::cudaGetErrorString) cuda_error_string;
  decltype(&::cudaGetDeviceCount) device_count;
  decltype(&::cudaSetDevice) set_device;
  decltype(&::cudaDeviceGetPCIBusId) device_pci_bus_id;
  decltype(&::cudaDeviceGetStreamPriorityRange) stream_priority_range;
  decltype(&::cudaStreamCreateWithPriority) stream_create;
  decltype(&::cudaStreamDestroy) stream_destroy;
  decltype(&::cudaStreamWaitEvent) stream_wait_event;
  cudaError_t (*event_create)(cudaEvent_t*, unsigned flags);
  decltype(&::cudaEventDestroy) event_destroy;
  cudaError_t (*event_record)(cudaEvent_t, cudaStream_t);
  decltype(&::cudaEventQuery) event_query;
  cudaError_t (*memcpy_async)(void*, const void*, size_t, cudaMemcpyKind, cudaStream_t);
};

const NcclApi& real_nccl_api();

}  // namespace trireme::comm
