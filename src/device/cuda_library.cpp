#include "device/cuda_library.hpp"

#include <dlfcn.h>

namespace trireme::device {
namespace {

std::string load() {
#ifdef TRIREME_HAVE_CUDA
  // Both libraries stay loaded. Every driver installs libcuda.so.1.
  if (::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == nullptr) return "";
  if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) return ::dlerror();
#endif
  return "";
}

const std::string load_error = load();

}  // namespace

const std::string& cuda_library_error() {
  return load_error;
}

}  // namespace trireme::device
