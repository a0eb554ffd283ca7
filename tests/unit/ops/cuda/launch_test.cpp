#include "core/error.hpp"
#include "ops/cuda/adamw.hpp"
#include "ops/cuda/column_sums.hpp"
#include "ops/cuda/cross_entropy.hpp"
#include "ops/cuda/dropout.hpp"
#include "ops/cuda/embedding.hpp"
#include "ops/cuda/fp8.hpp"
#include "ops/cuda/gated_activation.hpp"
#include "ops/cuda/grad_norm.hpp"
#include "ops/cuda/rms_norm.hpp"
#include "ops/cuda/rope.hpp"
#include "unit/ops/cuda/compare.hpp"

/// Tests all launches that the operations make, for large tensors of the Meta device. HostLauncher
/// throws if a GPU cannot start a shape.
namespace trireme::ops::testing {
namespace {

using trireme::testing::HostLauncher;

/// The most shared memory of a block on sm_80, sm_90 and sm_100, in bytes, by NVIDIA's CUDA C++
/// Programming Guide.
constexpr std::array<std::int64_t, 3> kSharedLimits{163 * 1024, 227 * 1024, 227 * 1024};

template <class Body>
void for_devices(const Body& body) {
  for (const std::int64_t limit : kSharedLimits) {
    HostLauncher host;
    host.shared_limit = limit;
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16})
      body(host, at::TensorOptions().dtype(dtype).device(at::kMeta));
  }
}

/// Returns the blocks of the last launch of a kernel; 0 if there was none.
std::int64_t blocks_of(const HostLauncher& host, const cuda::Kernel& kernel) {
  std::int64_t blocks = 0;
  for (const HostLauncher::Record& one : host.launches) {
    if (one.kernel == &kernel) blocks = one.shape.blocks;
  }
  return blocks;
}

TEST(CudaLaunch, EveryKernelIsTestedOnTheHost) {
  const HostLauncher host;
  for (const cuda::Kernel* kernel : cuda::all_kernels())
    EXPECT_TRUE(host.is_added(*kernel)) << kernel->name;
}

TEST(CudaLaunch, NormCoversAllRowsWithinTheLimits) {
  for_devices([](HostLauncher& host, const at::TensorOptions& options) {
    for (const std::int64_t width : {1, 64, 768, 5120, 16384, 65536}) {
      for (const std::int64_t rows : {1, 1023, 65536, 1048577}) {
        const at::Tensor x = at::empty({rows, width}, options);
        const at::Tensor weight = at::empty({width}, options);
        const AddRmsNormOutput out = cuda::norm(x, x, weight, kEps);
        cuda::norm_backward(x, x, x, weight, out.rstd);
        EXPECT_EQ(blocks_of(host, cuda::kRmsNormForward), rows);
        const cuda::Chunks chunks = cuda::row_chunks(rows);
        EXPECT_EQ(blocks_of(host, cuda::kRmsNormBackward), chunks.count);
        EXPECT_GE(chunks.count * chunks.rows, rows);
        EXPECT_LT((chunks.count - 1) * chunks.rows, rows);
        EXPECT_GE(blocks_of(host, cuda::kColumnSums) * cuda::kSumColumns, width);
      }
    }
  });
}

TEST(CudaLaunch, HeadsCoverAllTokensWithinTheLimits) {
  for_devices([](HostLauncher& host, const at::TensorOptions& options) {
    for (const std::int64_t width : {2, 64, 80, 128, 256, 1022, 1024}) {
      for (const std::int64_t heads : {1, 12, 64, 512}) {
        const at::Tensor q = at::empty({32, 1025, heads, width}, options);
        const at::Tensor k = at::empty({32, 1025, 1, width}, options);
        const at::Tensor weight = at::empty({width}, options);
        const at::Tensor table = at::empty({2048, width / 2}, options.dtype(at::kFloat));
        const QkNormRope setup{
            weight, weight, kEps, {table, table}, at::empty({32, 1025}, options.dtype(at::kLong))};
        cuda::rope(q, k, setup);
        cuda::rope_backward(q.transpose(1, 2), k.transpose(1, 2), q, k, setup, q, k);
        EXPECT_GE(blocks_of(host, cuda::kHeadsForward) * 512, 32 * 1025);
        EXPECT_EQ(blocks_of(host, cuda::kHeadsBackward), cuda::row_chunks(32 * 1025).count);
      }
    }
  });
}

TEST(CudaLaunch, GatedActivationCoversAllRows) {
  for_devices([](HostLauncher& host, const at::TensorOptions& options) {
    for (const std::int64_t width : {1, 1536, 14336}) {
      const at::Tensor gate_up = at::empty({3, 65537, 2 * width}, options);
      cuda::gated_backward(cuda::gated(gate_up, find_activation("silu")), gate_up,
                           find_activation("silu"));
      EXPECT_EQ(blocks_of(host, cuda::kGatedForward), 3 * 65537);
      EXPECT_EQ(blocks_of(host, cuda::kGatedBackward), 3 * 65537);
    }
  });
}

TEST(CudaLaunch, CrossEntropyAndDropoutCoverAllRows) {
  for_devices([](HostLauncher& host, const at::TensorOptions& options) {
    for (const std::int64_t width : {1, 768, 50257, 262144}) {
      for (const std::int64_t rows : {1, 65537, 3000000}) {
        const at::Tensor x = at::empty({1, rows, width}, options);
        const at::Tensor numbers = at::empty({rows}, options.dtype(at::kFloat));
        const at::Tensor targets = at::empty({1, rows}, options.dtype(at::kLong));
        cuda::cross_entropy(x[0], targets[0], numbers, numbers, {1.0}, /*want_grads=*/true);
        cuda::class_statistics(x[0], targets[0], 0);
        cuda::class_gradient(x[0], targets[0], numbers, numbers, numbers, 0, {1.0});
        DropoutMask mask;
        mask.samples = targets[0].narrow(0, 0, 1);
        mask.positions = targets;
        cuda::dropout(x, mask);
        for (const cuda::Kernel* kernel : std::initializer_list<const cuda::Kernel*>{
                 &cuda::kCrossEntropy, &cuda::kDropout, &cuda::kClassStatistics,
                 &cuda::kClassGradient})
          EXPECT_EQ(blocks_of(host, *kernel), rows) << kernel->name;
      }
    }
  });
}

TEST(CudaLaunch, EmbeddingCoversAllTokens) {
  for_devices([](HostLauncher& host, const at::TensorOptions& options) {
    for (const std::int64_t width : {1, 768, 16384}) {
      for (const std::int64_t tokens : {1, 65537, 3000000}) {
        cuda::add_embedding_gradient(at::empty({50257, width}, options.dtype(at::kFloat)),
                                     at::empty({tokens}, options.dtype(at::kLong)),
                                     at::empty({tokens, width}, options));
        for (const cuda::Kernel* kernel : std::initializer_list<const cuda::Kernel*>{
                 &cuda::kEmbeddingSegments, &cuda::kEmbeddingRuns})
          EXPECT_EQ(blocks_of(host, *kernel), (tokens + cuda::kSegment - 1) / cuda::kSegment);
      }
    }
  });
}

TEST(CudaLaunch, Fp8CoversAllTilesRowsAndColumns) {
  for_devices([](HostLauncher& host, const at::TensorOptions& options) {
    for (const std::int64_t width : {16, 129, 4096, 65536, 262144}) {
      for (const std::int64_t rows : {1, 129, 65536, 1048577}) {
        const at::Tensor x = at::empty({rows, width}, options);
        const at::Tensor scale = cuda::fp8_scale(cuda::fp8_amax(x), at::kFloat8_e5m2, false);
        const at::Tensor scales = cuda::fp8_scale(cuda::fp8_row_amax(x), at::kFloat8_e4m3fn, true);
        EXPECT_EQ(blocks_of(host, cuda::kFp8Amax), rows);
        EXPECT_GE(blocks_of(host, cuda::kFp8Scales) * cuda::kFp8Threads, rows);
        cuda::fp8_row_amax(x.t());
        cuda::quantize_fp8(x, scales, scale, at::kFloat8_e4m3fn);
        // A row of one element has no columns to combine.
        if (rows > 1) {
          EXPECT_GE(blocks_of(host, cuda::kFp8ColumnAmax) * 256, width);
        }
        const auto tiles = [](std::int64_t size) { return (size + 63) / 64; };
        EXPECT_EQ(blocks_of(host, cuda::kQuantizeFp8), tiles(rows) * tiles(width));
      }
    }
  });
}

TEST(CudaLaunch, OptimizerAndNormCoverAllElements) {
  for_devices([](HostLauncher& host, const at::TensorOptions& options) {
    for (const std::int64_t count :
         {std::int64_t{1}, std::int64_t{4097}, (std::int64_t{1} << 33) + 5}) {
      const at::Tensor floats = at::empty({count}, options.dtype(at::kFloat));
      const at::Tensor factor = at::empty({}, options.dtype(at::kFloat));
      const at::Tensor words = at::empty({cuda::kSumWords}, options.dtype(at::kLong));
      cuda::adamw({{floats, floats, floats, floats, at::empty({count}, options), 0.1}}, {}, factor);
      EXPECT_GE(blocks_of(host, cuda::kAdamW) * cuda::kAdamWBlock, count);
      EXPECT_LT((blocks_of(host, cuda::kAdamW) - 1) * cuda::kAdamWBlock, count);
      cuda::add_block_squares(floats, 0, words);
      cuda::clip_factor(words, 1.0, 1.0);
      EXPECT_EQ(blocks_of(host, cuda::kAddWords), 1);
      EXPECT_EQ(blocks_of(host, cuda::kClipFactor), 1);
    }
  });
}

TEST(CudaLaunch, AShapeThatNoGpuCanStartIsAnError) {
  HostLauncher host;
  const at::Tensor x = at::empty({1, 8}, at::kMeta);
  const auto start = [&](const cuda::Launch& shape) {
    cuda::launch(cuda::kGatedForward, x, shape, cuda::GatedForward{});
  };
  EXPECT_THROW(start({1, 512}), Error) << "more threads than the kernel is compiled for";
  EXPECT_THROW(start({1, 48}), Error) << "a part of a warp";
  EXPECT_THROW(start({1, 256, 164 * 1024}), Error) << "shared memory";
  EXPECT_THROW(start({std::int64_t{1} << 31, 256}), Error) << "blocks";
}

}  // namespace
}  // namespace trireme::ops::testing
