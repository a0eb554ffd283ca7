#include "device/own_pages.hpp"

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace trireme::device {
namespace {

/// Valid for x86-64, and for arm64 with pages of 4 KiB.
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kLargeBytes = 2 * kHugePage;

/// Maps new zeroed pages that start at a huge-page boundary.
void* map_pages(std::size_t bytes) {
  const std::size_t reserved = bytes + kHugePage;
  void* const all =
      ::mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  TORCH_CHECK_WITH(OutOfMemoryError, all != MAP_FAILED, "cannot allocate memory: ", bytes,
                   " bytes");
  auto* const base = static_cast<std::byte*>(all);
  const std::size_t over = reinterpret_cast<std::uintptr_t>(base) % kHugePage;
  const std::size_t before = over == 0 ? 0 : kHugePage - over;
  if (before > 0) ::munmap(base, before);
  ::munmap(base + before + bytes, reserved - before - bytes);
  ::madvise(base + before, bytes, MADV_HUGEPAGE);  // a hint: without it pages are small
  return base + before;
}

std::size_t bytes_of(std::int64_t count, const at::TensorOptions& options) {
  return static_cast<std::size_t>(count) * options.dtype().itemsize();
}

bool is_large_on_host(std::int64_t count, const at::TensorOptions& options) {
  return options.device().is_cpu() && bytes_of(count, options) >= kLargeBytes;
}

/// Returns zeros, because new pages are zeroed.
at::Tensor on_new_pages(std::int64_t count, const at::TensorOptions& options) {
  const std::size_t bytes = bytes_of(count, options);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t mapped = (bytes + page - 1) / page * page;
  void* const first = map_pages(mapped);
  c10::profiledCPUMemoryReporter().New(first, bytes);  // counted by MemoryCount
  const auto give_back = [mapped](void* p) {
    c10::profiledCPUMemoryReporter().Delete(p);
    ::munmap(p, mapped);
  };
  return at::from_blob(first, {count}, give_back, options);
}

}  // namespace

at::Tensor own_pages(std::int64_t count, const at::TensorOptions& options) {
  return is_large_on_host(count, options) ? on_new_pages(count, options)
                                          : at::empty({count}, options);
}

at::Tensor own_zero_pages(std::int64_t count, const at::TensorOptions& options) {
  return is_large_on_host(count, options) ? on_new_pages(count, options)
                                          : at::zeros({count}, options);
}

Backed back_with_memory(const at::Tensor& numbers) {
  const auto page = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<std::uintptr_t>(numbers.const_data_ptr());
  const std::uintptr_t first = address / page * page;
  const std::uintptr_t end = (address + numbers.nbytes() + page - 1) / page * page;
  std::vector<unsigned char> resident((end - first) / page);
  void* const pages = reinterpret_cast<void*>(first);
  if (::mincore(pages, end - first, resident.data()) == 0 &&
      std::all_of(resident.begin(), resident.end(),
                  [](unsigned char is) { return (is & 1U) != 0; }))
    return Backed::already;
  return ::madvise(pages, end - first, MADV_POPULATE_WRITE) == 0 ? Backed::now
                                                                 : Backed::not_possible;
}

}  // namespace trireme::device
