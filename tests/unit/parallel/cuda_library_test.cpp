#include "device/cuda_library.hpp"

#include <ATen/core/dispatch/Dispatcher.h>
#include <dlfcn.h>
#include <gtest/gtest.h>

#include "device/device.hpp"

namespace trireme::parallel {
namespace {

// Runs twice: with the libraries of this machine, and with an empty libcuda.so.1.
TEST(CudaLibrary, IsLoadedWhereThereIsADriver) {
  ASSERT_EQ(device::cuda_library_error(), "");
  const bool has_driver = ::dlopen("libcuda.so.1", RTLD_LAZY) != nullptr;
  const auto product = c10::Dispatcher::singleton().findSchema({"aten::mm", ""});
  ASSERT_TRUE(product.has_value());
  EXPECT_EQ(product->hasKernelForDispatchKey(c10::DispatchKey::CUDA), has_driver);
  EXPECT_GE(device::num_visible_gpus(), 0);
}

}  // namespace
}  // namespace trireme::parallel
