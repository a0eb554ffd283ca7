#include "ops/cuda/cross_entropy.hpp"

#include "comm/self/self_communicator.hpp"
#include "objective/vocab_chunk.hpp"
#include "unit/ops/cuda/compare.hpp"

namespace trireme::ops::testing {
namespace {

using trireme::testing::HostLauncher;

constexpr double kScale = 0.125;

struct LogitShape {
  std::int64_t rows;
  std::int64_t width;
};

const std::vector<LogitShape>& logit_shapes() {
  static const std::vector<LogitShape> shapes{{3, 1},   {5, 7},    {4, 64},
                                              {2, 513}, {3, 1032}, {2, 4104}};
  return shapes;
}

/// Returns targets in [0, classes); every third row has none.
at::Tensor some_targets(std::int64_t rows, std::int64_t classes) {
  at::Tensor targets = at::randint(classes, {rows}, at::kLong);
  for (std::int64_t row = 1; row < rows; row += 3) targets[row] = objective::kIgnoredTarget;
  return targets;
}

void expect_rows_equal_plain(const LogitShape& shape, bool has_weights, const CudaCase& one,
                             const std::string& label) {
  const at::Tensor logits = (random({shape.rows, shape.width}) * 4).to(one.dtype);
  const at::Tensor targets = some_targets(shape.rows, shape.width);
  const at::Tensor weights =
      has_weights ? at::rand({shape.rows}, at::TensorOptions(at::kFloat)) : at::Tensor();
  const at::Tensor valid = targets.ge(0);
  const at::Tensor log_probs = exact(logits).log_softmax(1);
  const at::Tensor picks = targets.clamp_min(0).unsqueeze(1);
  const at::Tensor expected = log_probs.gather(1, picks).squeeze(1).neg().mul(valid);
  at::Tensor factor = valid.to(at::kDouble) * kScale;
  if (has_weights) factor = factor * exact(weights);
  const at::Tensor grad =
      (log_probs.exp() - at::zeros_like(log_probs).scatter(1, picks, 1.0)) * factor.unsqueeze(1);

  const at::Tensor losses = at::full({shape.rows}, 7.0F);
  const at::Tensor only_losses = at::full({shape.rows}, 7.0F);
  const at::Tensor in_place = logits.clone();
  cuda::cross_entropy(in_place, targets, weights, only_losses, {kScale}, /*want_grads=*/false);
  EXPECT_TRUE(in_place.equal(logits)) << label;
  cuda::cross_entropy(in_place, targets, weights, losses, {kScale}, /*want_grads=*/true);
  EXPECT_TRUE(losses.equal(only_losses)) << label;
  expect_close(losses, expected, 4e-6, label + "losses");
  expect_close(in_place, grad, one.tolerance, label + "gradient");

  const at::Tensor by_device_scale = logits.clone();
  const at::Tensor scale = at::scalar_tensor(kScale, at::kDouble);
  cuda::cross_entropy(by_device_scale, targets, weights, losses, {7, scale}, /*want_grads=*/true);
  EXPECT_TRUE(by_device_scale.equal(in_place)) << label;
}

TEST(CudaCrossEntropy, EqualsLogSoftmaxForOddSizes) {
  at::manual_seed(1);
  for_cuda_cases([](const CudaCase& one, const std::string& label, const HostLauncher&) {
    for (const LogitShape& shape : logit_shapes()) {
      for (const bool has_weights : {false, true})
        expect_rows_equal_plain(shape, has_weights, one, label + std::to_string(shape.width) + " ");
    }
  });
}

/// One rank of a group: both implementations see the same classes and the same sums.
TEST(CudaCrossEntropy, ShardsOfTheVocabularyEqualThePlainChunk) {
  at::manual_seed(2);
  comm::SelfCommunicator world;
  for_cuda_cases([&](const CudaCase& one, const std::string& label, const HostLauncher&) {
    for (const LogitShape& shape : logit_shapes()) {
      const objective::VocabShard part{world, 5, shape.width + 40};
      const at::Tensor logits = (random({shape.rows, shape.width}) * 4).to(one.dtype);
      const at::Tensor targets = some_targets(shape.rows, part.classes);
      targets[0] = 5;  // a class of this rank
      const at::Tensor weights = at::rand({shape.rows}, at::TensorOptions(at::kFloat));
      const objective::LinearCrossEntropySetup setup{.grad_scale = kScale};
      const at::Tensor losses = at::empty({shape.rows}, at::kFloat);
      const at::Tensor plain_losses = at::empty({shape.rows}, at::kDouble);
      const at::Tensor plain = objective::plain_vocab_chunk(
          {exact(logits).clone(), targets, exact(weights), plain_losses}, part, setup);
      const at::Tensor grad =
          objective::cuda_vocab_chunk({logits.clone(), targets, weights, losses}, part, setup);
      const std::string at = label + std::to_string(shape.width) + " ";
      expect_close(losses, plain_losses, 4e-6, at + "losses");
      expect_close(grad, plain, one.tolerance, at + "gradient");

      const objective::LinearCrossEntropySetup on_device{
          .grad_scale = 7, .device_grad_scale = at::scalar_tensor(kScale, at::kDouble)};
      const at::Tensor again =
          objective::cuda_vocab_chunk({logits.clone(), targets, weights, losses}, part, on_device);
      EXPECT_TRUE(again.equal(grad)) << at;
    }
  });
}

TEST(CudaCrossEntropy, KeepsNanAndTakesMaskedClasses) {
  const HostLauncher host;
  const double infinity = std::numeric_limits<double>::infinity();
  const at::Tensor logits = at::zeros({2, 16});
  logits[0][3] = -infinity;
  logits[0].narrow(0, 8, 8).fill_(-infinity);  // whole vectors of one thread
  logits[1][9] = std::numeric_limits<double>::quiet_NaN();
  const at::Tensor losses = at::zeros({2});
  cuda::cross_entropy(logits, at::zeros({2}, at::kLong), {}, losses, {1.0}, /*want_grads=*/true);
  EXPECT_NEAR(losses[0].item<double>(), std::log(7.0), 1e-6);
  EXPECT_EQ(logits[0][12].item<double>(), 0);
  EXPECT_TRUE(std::isnan(losses[1].item<double>()));
  EXPECT_TRUE(logits[1].isnan().all().item<bool>());
}

}  // namespace
}  // namespace trireme::ops::testing
