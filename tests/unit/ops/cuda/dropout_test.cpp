#include "ops/cuda/dropout.hpp"

#include "core/philox.hpp"
#include "unit/ops/cuda/compare.hpp"

namespace trireme::ops::testing {
namespace {

using trireme::testing::HostLauncher;

/// Returns a mask with sample indices above 2^32, documents that restart at position 0, and drop
/// probability 0.3.
DropoutMask some_mask(std::int64_t batch, std::int64_t length, std::int64_t first_feature) {
  DropoutMask mask;
  mask.p = 0.3;
  mask.key = philox_key(7, "dropout.test");
  mask.step = 11;
  mask.layer = 3;
  mask.op = 1;
  mask.first_feature = first_feature;
  mask.samples = at::arange(batch, at::kLong) * 12345678901 + 5;
  mask.positions = at::arange(length, at::kLong).remainder(3).expand({batch, length});
  return mask;
}

TEST(CudaDropout, HasTheBitsOfThePlainPathForOddSizes) {
  at::manual_seed(1);
  for_cuda_cases([](const CudaCase& one, const std::string& label, const HostLauncher&) {
    for (const std::int64_t width : {1, 7, 64, 130, 1032, 4104}) {
      for (const std::int64_t first_feature : {0, 6, 64}) {
        const DropoutMask mask = some_mask(2, 5, first_feature);
        const at::Tensor x = random({2, 5, width}).to(one.dtype);
        x[0][1][0] = std::numeric_limits<double>::quiet_NaN();
        const at::Tensor y = cuda::dropout(x, mask);
        const at::Tensor expected = dropout_apply(x, mask, Path::plain);
        EXPECT_EQ(y.scalar_type(), one.dtype);
        EXPECT_TRUE(at::equal(y.nan_to_num(77), expected.nan_to_num(77)))
            << label << width << ", first feature " << first_feature;
        EXPECT_TRUE(y[0][1][0].isnan().item<bool>()) << label;
      }
    }
  });
}

TEST(CudaDropout, TakesStridesAndUnalignedTensors) {
  at::manual_seed(2);
  const HostLauncher host;
  const DropoutMask mask = some_mask(2, 3, 0);
  const at::Tensor strided = random({3, 2, 64}).to(at::kBFloat16).transpose(0, 1);
  const at::Tensor storage = random({2 * 3 * 64 + 1}).to(at::kBFloat16);
  const at::Tensor unaligned = storage.narrow(0, 1, 2 * 3 * 64).view({2, 3, 64});
  for (const at::Tensor& x : {strided, unaligned})
    EXPECT_TRUE(cuda::dropout(x, mask).equal(dropout_apply(x, mask, Path::plain)));
}

TEST(CudaDropout, TakesNoElements) {
  const HostLauncher host;
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{0, 3, 8}, {2, 0, 8}, {2, 3, 0}})
    EXPECT_EQ(cuda::dropout(at::empty(shape), some_mask(shape[0], shape[1], 0)).sizes(), shape);
}

}  // namespace
}  // namespace trireme::ops::testing
