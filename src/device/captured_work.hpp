#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

namespace trireme::device {

/// Memory for the temporary tensors of captured work. The allocator reuses memory only on the
/// stream that allocated it. All work for a GPU is therefore captured on one stream, and the pool
/// is about as large as the work that needs most, also after some of the work is destroyed. The
/// memory is freed after the pool and all of its work.
/// The workspace of cuBLAS is outside the pool. Captures of several threads wait for each other.
class CapturePool {
 public:
  explicit CapturePool(at::Device device);
  ~CapturePool();
  CapturePool(const CapturePool&) = delete;
  CapturePool& operator=(const CapturePool&) = delete;

  [[nodiscard]] at::Device device() const { return device_; }

 private:
  friend class CapturedWork;
  struct Memory;

  at::Device device_;
  std::unique_ptr<Memory> memory_;  // null on a CPU
};

/// Operations on tensors that are recorded once and then launched many times. On a GPU the record
/// is a CUDA graph, which takes one launch instead of one per kernel. On a CPU, a launch calls the
/// function again, so that tests without a GPU run the same code around it.
///
///   work   must read its inputs from tensors that keep their addresses and write its results to
///          such tensors. It must not wait for the device, and must not read values that the host
///          changes between launches. It must have run once before, so that kernels are loaded.
///   pool   memory for temporary tensors. Objects with the same pool share this memory, so their
///          launches must not overlap.
///
/// The constructor throws c10::Error if an operation cannot be captured; no operation of `work`
/// has run then. Source: CUDA programming guide, "CUDA Graphs"; capture as in PyTorch's
/// torch.cuda.graph, with the caching allocator's pools.
class CapturedWork {
 public:
  CapturedWork(std::shared_ptr<CapturePool> pool, std::function<void()> work);
  CapturedWork(CapturedWork&&) noexcept;
  CapturedWork& operator=(CapturedWork&&) noexcept;
  ~CapturedWork();

  /// Runs the operations on the current stream.
  void launch();

 private:
  struct Graph;

  std::function<void()> work_;
  std::unique_ptr<Graph> graph_;  // null on a CPU
};

}  // namespace trireme::device
