#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trireme::device {

/// Allocates an uninitialized tensor [count] that lives for an update or longer. Large host tensors
/// get their own pages, huge pages if the kernel offers them on request. Huge pages cause fewer TLB
/// misses (decoding reads weights a fifth faster). Freed pages return to the system and leave no
/// hole in the heap. Throws c10::OutOfMemoryError.
at::Tensor own_pages(std::int64_t count, const at::TensorOptions& options);

/// Like own_pages(), filled with zeros.
at::Tensor own_zero_pages(std::int64_t count, const at::TensorOptions& options);

enum class Backed { already, now, not_possible };

/// Faults in the pages of a contiguous host tensor now (about one second per gigabyte), not at the
/// first write. The contents stay. Any thread may call it, also while others read and write.
/// Returns `not_possible` if there is no memory or Linux is older than 5.14.
Backed back_with_memory(const at::Tensor& numbers);

}  // namespace trireme::device
