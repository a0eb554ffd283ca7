#include "optim/block_squares.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <span>

#include "core/exact_sum.hpp"
#include "ops/cuda/grad_norm.hpp"
#include "ops/operations.hpp"
#include "ops/path.hpp"

namespace trireme::optim {
namespace {

// most blocks at once in the plain implementation
constexpr std::int64_t kMostBlocks = std::int64_t{1} << 20;
constexpr std::int64_t kLowWord = 0xffffffff;
// least blocks of a thread on the host
constexpr std::int64_t kBlocksOfThread = std::int64_t{1} << 12;

/// Returns the sum of squares of a block. Elements go to one of eight partial sums by their
/// position in the block, and the partial sums are added in a fixed order. The loop vectorizes, and
/// the result is the same wherever a range begins.
template <class T>
double block_squares(std::span<const T> values, std::int64_t position) {
  constexpr std::size_t kLanes = 8;
  std::array<double, kLanes> lanes{};
  if (values.size() == kSquaresBlock) {
    for (std::size_t i = 0; i < kSquaresBlock; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const auto value = static_cast<double>(values[i + lane]);
        lanes[lane] += value * value;
      }
    }
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<double>(values[i]);
      lanes[(static_cast<std::size_t>(position) + i) % kLanes] += value * value;
    }
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <class T>
void host_squares(const at::Tensor& grads, std::int64_t begin, const at::Tensor& words) {
  const std::span values(grads.const_data_ptr<T>(), static_cast<std::size_t>(grads.numel()));
  const std::int64_t end = begin + grads.numel();
  auto* const out = words.mutable_data_ptr<std::int64_t>();
  std::mutex mutex;
  // Each thread has whole blocks. Exact sums do not depend on the order in which they are added.
  const auto add_blocks = [&](std::int64_t first_block, std::int64_t end_block) {
    ExactSum sum;
    for (std::int64_t block = first_block; block < end_block; ++block) {
      const std::int64_t from = std::max(begin, block * kSquaresBlock);
      const std::int64_t to = std::min(end, (block + 1) * kSquaresBlock);
      sum.add(block_squares(values.subspan(static_cast<std::size_t>(from - begin),
                                           static_cast<std::size_t>(to - from)),
                            from % kSquaresBlock));
    }
    sum.carry();
    const std::lock_guard lock(mutex);
    for (std::size_t i = 0; i < sum.words().size(); ++i) out[i] += sum.words()[i];
  };
  at::parallel_for(begin / kSquaresBlock, (end + kSquaresBlock - 1) / kSquaresBlock,
                   kBlocksOfThread, add_blocks);
}

/// Applies ExactSum::add to every element of sums [n] fp64.
void add_to_words(const at::Tensor& sums, const at::Tensor& words) {
  const at::Tensor finite = sums.isfinite();
  words.select(0, ExactSum::kWords).add_(finite.logical_not().sum());
  const at::Tensor bits = at::where(finite, sums, at::zeros_like(sums)).view(at::kLong);
  const at::Tensor exponent = bits.bitwise_right_shift(52);
  const at::Tensor hidden = exponent.gt(0).to(at::kLong).bitwise_left_shift(52);
  const at::Tensor digits = bits.bitwise_and((std::int64_t{1} << 52) - 1).bitwise_or(hidden);
  const at::Tensor position = exponent.clamp_min(1).sub(1);
  const at::Tensor word = position.bitwise_right_shift(5);
  const at::Tensor shift = position.bitwise_and(31);
  const at::Tensor low = digits.bitwise_and(kLowWord).bitwise_left_shift(shift);
  const at::Tensor high =
      digits.bitwise_right_shift(32).bitwise_left_shift(shift).add(low.bitwise_right_shift(32));
  at::Tensor sum = at::zeros({static_cast<std::int64_t>(ExactSum::kWords) + 1}, bits.options());
  sum.index_add_(0, word, low.bitwise_and(kLowWord));
  sum.index_add_(0, word.add(1), high.bitwise_and(kLowWord));
  sum.index_add_(0, word.add(2), high.bitwise_right_shift(32));
  words.add_(sum);
}

/// Applies ExactSum::carry once to every word.
void carry(const at::Tensor& words) {
  constexpr auto kWords = static_cast<std::int64_t>(ExactSum::kWords);
  const at::Tensor carried = words.narrow(0, 0, kWords - 1).bitwise_right_shift(32);
  words.narrow(0, 0, kWords - 1).bitwise_and_(kLowWord);
  words.narrow(0, 1, kWords - 1).add_(carried);
}

template <at::ScalarType kType>
bool is_on_host(const at::Tensor& grads) {
  return grads.is_cpu() && grads.scalar_type() == kType;
}

struct SquaresRow {
  bool (*accepts)(const at::Tensor& grads);
  decltype(&add_block_squares_plain) add;
};

constexpr std::array kSquares{
    SquaresRow{is_on_host<at::kFloat>, host_squares<float>},
    SquaresRow{is_on_host<at::kDouble>, host_squares<double>},
    SquaresRow{ops::cuda::accepts_grad_norm, ops::cuda::add_block_squares},
    SquaresRow{nullptr, add_block_squares_plain},
};

}  // namespace

void add_block_squares_plain(const at::Tensor& grads, std::int64_t begin, const at::Tensor& words) {
  const std::int64_t before = begin % kSquaresBlock;
  const std::int64_t blocks = (before + grads.numel() + kSquaresBlock - 1) / kSquaresBlock;
  for (std::int64_t first = 0; first < blocks; first += kMostBlocks) {
    const std::int64_t end = std::min(blocks, first + kMostBlocks);
    const std::int64_t from = std::max<std::int64_t>(0, first * kSquaresBlock - before);
    const std::int64_t to = std::min(grads.numel(), end * kSquaresBlock - before);
    const std::int64_t left = from - (first * kSquaresBlock - before);
    const std::int64_t right = end * kSquaresBlock - before - to;
    at::Tensor wide = grads.narrow(0, from, to - from).to(at::kDouble);
    if (left > 0 || right > 0) wide = at::constant_pad_nd(wide, {left, right});
    add_to_words(wide.mul(wide).view({-1, kSquaresBlock}).sum(1), words);
  }
  carry(words);
}

void add_block_squares(const at::Tensor& grads, std::int64_t begin, const at::Tensor& words) {
  const ops::Path path = path_of(ops::Operation::grad_norm, ops::Path::fast);
  choose(path, kSquares, grads).add(grads, begin, words);
}

}  // namespace trireme::optim
