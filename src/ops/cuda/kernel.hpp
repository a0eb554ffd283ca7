#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

/// Kernels that are compiled at run time for the device's architecture.
namespace trireme::ops::cuda {

/// The dtypes of tensors that kernels read and write.
enum class Element { bf16, f16, f32 };

inline constexpr std::array kElements{Element::bf16, Element::f16, Element::f32};

std::string_view element_name(Element element);

/// A function template in kernels/<source>.cu, in this namespace, with the signature
/// `template <class T> void name(const Arguments&)`. T is the element type.
struct Kernel {
  std::string_view name;
  std::string_view source;
  std::string_view arguments;  // the name of the struct, declared in kernels/<source>.hpp
  int max_threads = 256;       // per block
  bool fp32_only = false;      // T is always float
};

/// A kernel with the type of its arguments.
template <class Arguments>
struct KernelOf : Kernel {
  static_assert(std::is_trivially_copyable_v<Arguments> && sizeof(Arguments) <= 4096);
};

/// Returns all kernels. CMake makes the list, from registry.cpp.in.
std::span<const Kernel* const> all_kernels();

/// The shape of one launch. The number of threads is a multiple of 32.
struct Launch {
  std::int64_t blocks = 0;  // 0: nothing to do
  int threads = 0;
  std::int64_t shared_bytes = 0;  // dynamic shared memory of a block
  int blocks_y = 1;
};

/// Starts kernels. The default launcher compiles them with NVRTC and uses LibTorch's current stream;
/// tests have one that runs the blocks on the host.
class Launcher {
 public:
  Launcher() = default;
  Launcher(const Launcher&) = delete;
  Launcher& operator=(const Launcher&) = delete;
  Launcher(Launcher&&) = delete;
  Launcher& operator=(Launcher&&) = delete;
  virtual ~Launcher() = default;

  /// Returns true if kernels run on this kind of device.
  [[nodiscard]] virtual bool serves(at::Device device) const { return device.is_cuda(); }

  /// Returns true if the kernel can be started. Otherwise the reason was logged once.
  virtual bool has(const Kernel& kernel, Element element, at::Device device) = 0;

  /// Returns the most dynamic and static shared memory of a block, in bytes.
  virtual std::int64_t max_shared_bytes(at::Device device) = 0;

  virtual void launch(const Kernel& kernel, Element element, at::Device device, const Launch& shape,
                      const void* arguments) = 0;
};

Launcher& launcher();

/// Replaces the launcher of all threads; null: the default one. For tests.
void set_launcher(Launcher* replacement);

/// Returns the element of a bf16, fp16 or fp32 tensor. Throws Error(internal) for other dtypes.
Element element_of(const at::Tensor& x);

/// Returns true if x is a bf16, fp16 or fp32 tensor on a GPU and all `kernels` can be started there.
bool accepts(const at::Tensor& x, std::initializer_list<const Kernel*> kernels);

/// Starts a kernel on the device of `x`; x's dtype is the element type. Throws Error(resource) if
/// the driver refuses the launch.
template <class Arguments>
void launch(const KernelOf<Arguments>& kernel, const at::Tensor& x, const Launch& shape,
            const Arguments& arguments) {
  if (shape.blocks > 0) launcher().launch(kernel, element_of(x), x.device(), shape, &arguments);
}

/// Returns the number of threads for rows of `width` elements, with one vector of 16 bytes per
/// thread if `most` threads suffice.
int threads_for_row(std::int64_t width, const at::Tensor& x, int most = 256);

/// Returns x, or a contiguous copy; an undefined tensor stays undefined.
at::Tensor contiguous_or_undefined(const at::Tensor& x);

/// Returns the address of the data, or null for an undefined tensor.
void* data_or_null(const at::Tensor& x);

/// Like data_or_null, with the type of the elements. The Meta device has no data: null.
template <class T>
T* data_of(const at::Tensor& x) {
  return static_cast<T*>(data_or_null(x));
}

}  // namespace trireme::ops::cuda
