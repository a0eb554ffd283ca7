#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trireme {

/// Numbers [count], whatever they are, that live for an update or longer. In host memory large ones lie
/// on pages of their own, huge ones where the kernel has them for who asks (fewer misses of its page
/// tables: decoding reads weights a fifth faster), and go back to the system when they are freed: the
/// heap keeps no hole of their size. Throws c10::OutOfMemoryError.
at::Tensor own_pages(std::int64_t count, const at::TensorOptions& options);

/// The same as zeros.
at::Tensor own_zero_pages(std::int64_t count, const at::TensorOptions& options);

enum class Backed { already, now, not_possible };

/// Puts memory under a contiguous host tensor now (about a second a gigabyte), not when it is first
/// written; what it holds stays. Any thread, also while others read and write. `not_possible`: no memory,
/// or Linux before 5.14.
Backed back_with_memory(const at::Tensor& numbers);

}  // namespace trireme
