#pragma once
#include <array>
#include <functional>
#include <map>
#include <vector>

#include "ops/cuda/kernel.hpp"

/// Runs CUDA kernels on the host, on tensors in host memory. The kernels are the functions of
/// src/ops/cuda/kernels, compiled by the host's compiler.
namespace trireme::testing {

class HostLauncher : public ops::cuda::Launcher {
 public:
  struct Record {
    const ops::cuda::Kernel* kernel;
    ops::cuda::Launch shape;
  };

  /// While it lives, every launch goes to this launcher, which has all kernels.
  HostLauncher();

  ~HostLauncher() override { ops::cuda::set_launcher(nullptr); }

  HostLauncher(const HostLauncher&) = delete;
  HostLauncher& operator=(const HostLauncher&) = delete;
  HostLauncher(HostLauncher&&) = delete;
  HostLauncher& operator=(HostLauncher&&) = delete;

  [[nodiscard]] bool is_added(const ops::cuda::Kernel& kernel) const {
    return functions_.count(&kernel) != 0;
  }

  /// Adds the functions of a kernel for bf16, fp16 and fp32.
  template <class Arguments>
  void add(const ops::cuda::KernelOf<Arguments>& kernel, void (*bf16)(const Arguments&),
           void (*f16)(const Arguments&), void (*f32)(const Arguments&)) {
    functions_[&kernel] = std::array<Function, 3>{bind(bf16), bind(f16), bind(f32)};
  }

  /// Adds the function of a kernel that is fp32 only.
  template <class Arguments>
  void add(const ops::cuda::KernelOf<Arguments>& kernel, void (*f32)(const Arguments&)) {
    functions_[&kernel] = std::array<Function, 3>{Function{}, Function{}, bind(f32)};
  }

  bool has(const ops::cuda::Kernel&, ops::cuda::Element, at::Device) override { return true; }

  std::int64_t max_shared_bytes(at::Device) override { return shared_limit; }

  /// Checks the shape and runs all blocks. With the Meta device, only records the launch.
  void launch(const ops::cuda::Kernel& kernel, ops::cuda::Element element, at::Device device,
              const ops::cuda::Launch& shape, const void* arguments) override;

  std::int64_t shared_limit = 163 * 1024;  // sm_80
  bool backwards = false;
  bool only_last_block = false;  // along x, for tensors that are too large to process
  std::vector<Record> launches;

 private:
  using Function = std::function<void(const void*)>;

  template <class Arguments>
  static Function bind(void (*function)(const Arguments&)) {
    return
        [function](const void* arguments) { function(*static_cast<const Arguments*>(arguments)); };
  }

  std::map<const ops::cuda::Kernel*, std::array<Function, 3>> functions_;
};

}  // namespace trireme::testing
