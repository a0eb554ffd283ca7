#include "ops/cuda/gpu_launcher.hpp"

#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"
#include "ops/cuda/cubin_cache.hpp"
#include "ops/cuda/driver.hpp"
#include "ops/cuda/nvrtc.hpp"
#include "ops/cuda/sources.hpp"
#ifdef TRIREME_HAVE_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

namespace trireme::ops::cuda {
namespace {

void* current_stream([[maybe_unused]] at::Device device) {
#ifdef TRIREME_HAVE_CUDA
  return c10::cuda::getCurrentCUDAStream(device.index()).stream();
#else
  return nullptr;
#endif
}

class GpuLauncher final : public Launcher {
 public:
  bool has(const Kernel& kernel, Element element, at::Device device) override {
    return find(kernel, element, device) != nullptr;
  }

  std::int64_t max_shared_bytes(at::Device device) override {
    return device_shared_bytes(device.index());
  }

  void launch(const Kernel& kernel, Element element, at::Device device, const Launch& shape,
              const void* arguments) override {
    void* const function = find(kernel, element, device);
    if (function == nullptr)
      fail(ErrorKind::internal, "kernel {} was started, but it is not available", kernel.name);
    launch_function(device.index(), function, shape, current_stream(device), arguments);
  }

 private:
  using Key = std::tuple<const Kernel*, Element, int>;

  /// Returns the loaded function, or null if it is not available.
  void* find(const Kernel& kernel, Element element, at::Device device) {
    const std::lock_guard lock(mutex_);
    const Key key{&kernel, element, device.index()};
    const auto found = functions_.find(key);
    if (found != functions_.end()) return found->second;
    return functions_[key] = load_or_warn(kernel, element, device.index());
  }

  void* load_or_warn(const Kernel& kernel, Element element, int device) {
    try {
      const int number = device_architecture(device);
      if (number < kLeastArchitecture)
        fail(ErrorKind::resource, "the device has architecture sm_{}, must be sm_{} or later",
             number, kLeastArchitecture);
      const std::string architecture = formatted("sm_{}", number);
      const std::string cubin =
          read_or_make(cache_directories(), cubin_name(kernel, element, architecture),
                       [&] { return compile(kernel, element, architecture).cubin; });
      return load_function(device, cubin, std::string(kernel.name));
    } catch (const Error& error) {
      // A reason such as a missing library is the same for all kernels.
      if (reasons_.insert(error.what()).second)
        log::warn(
            formatted("CUDA kernel {} ({}) is not available, so slower operations of LibTorch "
                      "replace it: {}",
                      kernel.name, element_name(element), error.what()));
      return nullptr;
    }
  }

  std::mutex mutex_;
  std::map<Key, void*> functions_;
  std::set<std::string> reasons_;
};

}  // namespace

Launcher& gpu_launcher() {
  static GpuLauncher launcher;
  return launcher;
}

std::string cubin_name(const Kernel& kernel, Element element, const std::string& architecture) {
  Hasher hash;
  const auto add = [&](std::string_view text) {
    hash.update(formatted("{}:", text.size()));
    hash.update(text);
  };
  add(program_of(kernel, element));
  for (const SourceFile& file : source_files()) add(file.text);
  for (const std::string& option : compile_options(architecture)) add(option);
  add(nvrtc_version());
  return formatted("{}-{}-{}-{}.cubin", kernel.name, element_name(element), architecture,
                   hash.hex());
}

}  // namespace trireme::ops::cuda
