#include "checkpoint/disk/aligned_buffer.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace trireme::checkpoint {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t rounded_up(std::size_t bytes) {
  return (bytes + AlignedBuffer::kAlignment - 1) / AlignedBuffer::kAlignment *
         AlignedBuffer::kAlignment;
}

}  // namespace

AlignedBuffer::AlignedBuffer(std::size_t bytes)
    : size_(rounded_up(std::max<std::size_t>(bytes, 1))) {
  const bool large = size_ >= kHugePage;
  // aligned_alloc requires a size that is a multiple of the alignment.
  const std::size_t whole = large ? (size_ + kHugePage - 1) / kHugePage * kHugePage : size_;
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(large ? kHugePage : kAlignment, whole)));
  if (!memory_) throw std::bad_alloc();
  // One device request covers adjacent pages only. Huge pages make one large request possible,
  // which was measured two to three times as fast. This call is only a hint.
  if (large) (void)::madvise(memory_.get(), whole, MADV_HUGEPAGE);
}

void AlignedBuffer::Free::operator()(std::byte* memory) const noexcept {
  std::free(memory);
}

}  // namespace trireme::checkpoint
