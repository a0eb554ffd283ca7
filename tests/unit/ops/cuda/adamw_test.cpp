#include "ops/cuda/adamw.hpp"

#include "unit/ops/adamw_pieces.hpp"
#include "unit/ops/cuda/compare.hpp"

namespace trireme::ops::testing {
namespace {

using trireme::testing::HostLauncher;

TEST(CudaAdamW, EqualsAtenInFp64ForOddSizes) {
  at::manual_seed(1);
  for_cuda_cases([](const CudaCase& one, const std::string& label, const HostLauncher&) {
    std::vector<AdamWTensors> pieces;
    std::vector<std::array<at::Tensor, 3>> expected;
    std::vector<at::Tensor> grads;
    for (const std::int64_t count : {1, 7, 4096, 4099, 64}) {
      for (const std::int64_t offset : {0, 1}) {
        pieces.push_back(some_piece(count, offset, count % 2 == 0 ? 0.1 : 0.0, one.dtype));
        expected.push_back(expected_update(pieces.back(), 0.25));
        grads.push_back(pieces.back().grads.clone());
      }
    }
    cuda::adamw(pieces, kNumbers, at::scalar_tensor(0.25, at::kFloat));
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const std::string at = label + std::to_string(pieces[i].weights.numel());
      expect_close(pieces[i].weights, expected[i][0], 1e-6, at + " weights");
      expect_close(pieces[i].exp_avg, expected[i][1], 1e-6, at + " exp_avg");
      expect_close(pieces[i].exp_avg_sq, expected[i][2], 1e-6, at + " exp_avg_sq");
      EXPECT_TRUE(pieces[i].grads.equal(grads[i])) << at;
      if (!pieces[i].copy.defined()) continue;
      EXPECT_TRUE(pieces[i].copy.equal(pieces[i].weights.to(one.dtype))) << at << " copy";
    }
  });
}

TEST(CudaAdamW, ChangesNothingIfTheFactorIsNotFinite) {
  at::manual_seed(2);
  const HostLauncher host;
  for (const double factor :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const AdamWTensors piece = some_piece(70, 0, 0.1, at::kBFloat16);
    const at::Tensor weights = piece.weights.clone();
    const at::Tensor exp_avg = piece.exp_avg.clone();
    cuda::adamw({piece}, kNumbers, at::scalar_tensor(factor, at::kFloat));
    EXPECT_TRUE(piece.weights.equal(weights));
    EXPECT_TRUE(piece.exp_avg.equal(exp_avg));
    EXPECT_TRUE(piece.copy.eq(0).all().item<bool>());
  }
}

TEST(CudaAdamW, StartsSeveralLaunchesForManyPieces) {
  at::manual_seed(3);
  const HostLauncher host;
  std::vector<AdamWTensors> pieces;
  std::vector<std::array<at::Tensor, 3>> expected;
  for (int i = 0; i < 2 * cuda::kAdamWPieces + 1; ++i) {
    pieces.push_back(some_piece(i % 5, 0, 0.1, at::kBFloat16));  // some have no elements
    expected.push_back(expected_update(pieces.back(), 1));
  }
  cuda::adamw(pieces, kNumbers, at::ones({}));
  EXPECT_EQ(host.launches.size(), 3U);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    expect_close(pieces[i].weights, expected[i][0], 1e-6, "piece " + std::to_string(i));
}

}  // namespace
}  // namespace trireme::ops::testing
