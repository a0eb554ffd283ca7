#include "device/allocator_settings.hpp"

#include <c10/core/AllocatorConfig.h>

#include <cstdlib>

namespace trireme::device {

void use_expandable_segments() {
  for (const char* const setting : {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"})
    if (std::getenv(setting) != nullptr) return;
  c10::CachingAllocator::setAllocatorSettings("expandable_segments:True");
}

}  // namespace trireme::device
