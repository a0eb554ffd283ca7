#include "ops/cuda/kernel.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <atomic>

#include "core/error.hpp"
#include "ops/cuda/gpu_launcher.hpp"

namespace trireme::ops::cuda {
namespace {

std::atomic<Launcher*>& replacement_launcher() {
  static std::atomic<Launcher*> replacement{nullptr};
  return replacement;
}

bool is_element(at::ScalarType type) {
  return type == at::kBFloat16 || type == at::kHalf || type == at::kFloat;
}

}  // namespace

std::string_view element_name(Element element) {
  constexpr std::array<std::string_view, 3> kNames{"bf16", "f16", "f32"};
  return kNames[static_cast<std::size_t>(element)];
}

Launcher& launcher() {
  Launcher* const replacement = replacement_launcher();
  return replacement != nullptr ? *replacement : gpu_launcher();
}

void set_launcher(Launcher* replacement) {
  replacement_launcher() = replacement;
}

Element element_of(const at::Tensor& x) {
  if (!is_element(x.scalar_type()))
    fail(ErrorKind::internal, "a CUDA kernel got {}, must be bf16, fp16 or fp32", x.scalar_type());
  if (x.scalar_type() == at::kBFloat16) return Element::bf16;
  return x.scalar_type() == at::kHalf ? Element::f16 : Element::f32;
}

bool accepts(const at::Tensor& x, std::initializer_list<const Kernel*> kernels) {
  if (!launcher().serves(x.device()) || !is_element(x.scalar_type())) return false;
  const Element element = element_of(x);
  return std::all_of(kernels.begin(), kernels.end(), [&](const Kernel* kernel) {
    return launcher().has(*kernel, kernel->fp32_only ? Element::f32 : element, x.device());
  });
}

int threads_for_row(std::int64_t width, const at::Tensor& x, int most) {
  const std::int64_t lanes = 16 / static_cast<std::int64_t>(x.element_size());
  const std::int64_t warps = (width + 32 * lanes - 1) / (32 * lanes);
  return static_cast<int>(std::clamp<std::int64_t>(32 * warps, 32, most));
}

at::Tensor contiguous_or_undefined(const at::Tensor& x) {
  return x.defined() ? x.contiguous() : x;
}

void* data_or_null(const at::Tensor& x) {
  return x.defined() ? x.data_ptr() : nullptr;
}

}  // namespace trireme::ops::cuda
