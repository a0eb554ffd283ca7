#pragma once

namespace trireme::device {

/// Makes LibTorch allocate host tensors in blocks that malloc can use again for a tensor of the
/// same size. LibTorch's own allocator asks for aligned blocks, and glibc finds no freed block of
/// the same size for such a request, so that a heap with repeating sizes grows by a third.
/// Alignment (64 bytes) and reports to MemoryCount are unchanged. Later calls have no effect.
void use_host_allocator();

}  // namespace trireme::device
