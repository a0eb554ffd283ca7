#include "support/cuda_launcher.hpp"

#include <limits>

#include "core/error.hpp"
#include "support/cuda_block.hpp"

namespace trireme::testing {
namespace {

/// Throws Error(internal) if a GPU could not start this shape.
void check_shape(const ops::cuda::Kernel& kernel, const ops::cuda::Launch& shape,
                 std::int64_t shared_limit) {
  constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();
  constexpr int kMostBlocksY = 65535;
  const bool fits = shape.threads > 0 && shape.threads % 32 == 0 &&
                    shape.threads <= kernel.max_threads && kernel.max_threads <= 1024 &&
                    shape.blocks <= kMostBlocks && shape.blocks_y >= 1 &&
                    shape.blocks_y <= kMostBlocksY && shape.shared_bytes >= 0 &&
                    shape.shared_bytes <= shared_limit;
  if (!fits)
    fail(ErrorKind::internal,
         "{}: {} x {} blocks, {} threads, {} bytes of shared memory cannot start", kernel.name,
         shape.blocks, shape.blocks_y, shape.threads, shape.shared_bytes);
}

}  // namespace

void HostLauncher::launch(const ops::cuda::Kernel& kernel, ops::cuda::Element element,
                          at::Device device, const ops::cuda::Launch& shape,
                          const void* arguments) {
  check_shape(kernel, shape, shared_limit);
  launches.push_back({&kernel, shape});
  if (device.is_meta()) return;
  const auto found = functions_.find(&kernel);
  if (found == functions_.end() || !found->second[static_cast<std::size_t>(element)])
    fail(ErrorKind::internal, "{} has no function for {} in the test", kernel.name,
         ops::cuda::element_name(element));
  const Function& function = found->second[static_cast<std::size_t>(element)];
  CudaThread first;
  first.block_size = {static_cast<unsigned>(shape.threads), 1, 1};
  first.grid_size = {static_cast<unsigned>(shape.blocks), static_cast<unsigned>(shape.blocks_y), 1};
  for (unsigned y = 0; y < first.grid_size.y; ++y) {
    for (unsigned x = only_last_block ? first.grid_size.x - 1 : 0; x < first.grid_size.x; ++x) {
      first.block = {x, y, 0};
      run_block(first, shape.shared_bytes, backwards, [&] { function(arguments); });
    }
  }
}

}  // namespace trireme::testing
