#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace trireme::device {

/// Operations on tensors that are recorded once and then launched many times. On a GPU the record
/// is a CUDA graph, which takes one launch instead of one per kernel. On a CPU, a launch calls the
/// function again, so that tests without a GPU run the same code around it.
///
///   work   must read its inputs from tensors that keep their addresses and write its results to
///          such tensors. It must not wait for the device, and must not read values that the host
///          changes between launches. It must have run once before, so that kernels are loaded.
///   pool   number of the memory pool for temporary tensors. Objects with the same pool share this
///          memory, so their launches must not overlap.
///
/// The constructor throws c10::Error if an operation cannot be captured; no operation of `work`
/// has run then. Source: CUDA programming guide, "CUDA Graphs"; capture as in PyTorch's
/// torch.cuda.graph, with the caching allocator's pools.
class CapturedWork {
 public:
  CapturedWork(at::Device device, std::int64_t pool, std::function<void()> work);
  CapturedWork(CapturedWork&&) noexcept;
  CapturedWork& operator=(CapturedWork&&) noexcept;
  ~CapturedWork();

  /// Runs the operations on the current stream.
  void launch();

  /// Returns a pool that no other object uses.
  static std::int64_t new_pool();

 private:
  struct Graph;

  std::function<void()> work_;
  std::unique_ptr<Graph> graph_;  // null on a CPU
};

}  // namespace trireme::device
