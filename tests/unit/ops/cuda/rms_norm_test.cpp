#include "ops/cuda/rms_norm.hpp"

#include "unit/ops/cuda/compare.hpp"

namespace trireme::ops::testing {
namespace {

using trireme::testing::HostLauncher;

struct NormShape {
  std::int64_t rows;
  std::int64_t width;
};

void expect_norm_equals_plain(const NormShape& shape, bool has_residual, const CudaCase& one,
                              const std::string& label) {
  const auto some = [&](at::IntArrayRef sizes) { return random(sizes).to(one.dtype); };
  const at::Tensor x = some({shape.rows, shape.width});
  const at::Tensor residual = has_residual ? some({shape.rows, shape.width}) : at::Tensor();
  const at::Tensor weight = some({shape.width});
  const at::Tensor grad_y = some({shape.rows, shape.width});
  const at::Tensor grad_sum = has_residual ? some({shape.rows, shape.width}) : at::Tensor();

  const AddRmsNormOutput out = cuda::norm(x, residual, weight, kEps);
  const RmsNormGrads grads = cuda::norm_backward(grad_y, grad_sum, out.sum, weight, out.rstd);

  const at::Tensor sum = has_residual ? x + residual : x;
  const AddRmsNormOutput plain =
      add_rms_norm_forward(exact(sum), {}, exact(weight), kEps, Path::plain);
  const RmsNormGrads plain_grads = add_rms_norm_backward(exact(grad_y), exact(grad_sum), exact(sum),
                                                         exact(weight), plain.rstd, Path::plain);
  EXPECT_TRUE(out.sum.equal(sum)) << label;
  expect_close(out.y, plain.y, one.tolerance, label + "y");
  expect_close(out.rstd, plain.rstd, 4e-6, label + "rstd");
  expect_close(grads.x, plain_grads.x, one.tolerance, label + "gradient of x");
  expect_close(grads.weight, plain_grads.weight, 4e-6, label + "gradient of the weight");
  const RmsNormGrads with_y =
      cuda::norm_backward(grad_y, grad_sum, out.sum, weight, out.rstd, /*want_y=*/true);
  EXPECT_TRUE(with_y.x.equal(grads.x)) << label;
  expect_close(with_y.y, plain.y, one.tolerance, label + "y of backward");
}

TEST(CudaRmsNorm, EqualsThePlainPathForOddSizes) {
  at::manual_seed(1);
  for_cuda_cases([](const CudaCase& one, const std::string& label, const HostLauncher&) {
    for (const NormShape& shape :
         std::vector<NormShape>{{1, 3}, {3, 7}, {3, 64}, {2, 513}, {2, 1032}, {1, 2056}}) {
      for (const bool has_residual : {false, true})
        expect_norm_equals_plain(shape, has_residual, one,
                                 label + std::to_string(shape.width) + " ");
    }
  });
}

TEST(CudaRmsNorm, AddsSeveralRowsPerBlockAndWithoutSharedMemory) {
  at::manual_seed(2);
  HostLauncher host;
  expect_norm_equals_plain({1027, 130}, true, {at::kFloat, 1e-5}, "2 rows per block ");
  host.shared_limit = 4096;
  expect_norm_equals_plain({3, 1040}, true, {at::kFloat, 1e-5}, "sums in global memory ");
}

TEST(CudaRmsNorm, TakesAnUnalignedTensor) {
  at::manual_seed(3);
  const HostLauncher host;
  const at::Tensor storage = random({3 * 64 + 1}).to(at::kBFloat16);
  const at::Tensor x = storage.narrow(0, 1, 3 * 64).view({3, 64});
  const at::Tensor weight = random({64}).to(at::kBFloat16);
  const AddRmsNormOutput out = cuda::norm(x, {}, weight, kEps);
  expect_close(out.y, add_rms_norm_forward(exact(x), {}, exact(weight), kEps, Path::plain).y, 6e-3,
               "unaligned");
}

TEST(CudaRmsNorm, TakesNoRows) {
  const HostLauncher host;
  const at::Tensor x = at::empty({0, 16});
  const AddRmsNormOutput out = cuda::norm(x, {}, at::ones({16}), kEps);
  const RmsNormGrads grads = cuda::norm_backward(x, {}, x, at::ones({16}), out.rstd);
  EXPECT_TRUE(grads.weight.equal(at::zeros({16})));
}

}  // namespace
}  // namespace trireme::ops::testing
