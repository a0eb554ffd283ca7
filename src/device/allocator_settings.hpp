#pragma once

namespace trireme::device {

/// Makes LibTorch's CUDA allocator grow its segments instead of allocating new ones, which leaves
/// fewer gaps when tensor sizes vary. Has no effect if the user has set PYTORCH_ALLOC_CONF or
/// PYTORCH_CUDA_ALLOC_CONF. Call it before the first allocation on a GPU.
void use_expandable_segments();

}  // namespace trireme::device
