#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include "core/error.hpp"
#include "ops/cuda/adamw.hpp"
#include "ops/cuda/column_sums.hpp"
#include "ops/cuda/cross_entropy.hpp"
#include "ops/cuda/dropout.hpp"
#include "ops/cuda/embedding.hpp"
#include "ops/cuda/fp8.hpp"
#include "ops/cuda/gated_activation.hpp"
#include "ops/cuda/rms_norm.hpp"
#include "ops/cuda/rope.hpp"
#include "unit/ops/cuda/compare.hpp"

/// Runs the last block of each kernel on tensors with more than 2^31 elements: a 32-bit index would
/// leave the tensor. The other blocks do not run, so only the last pages of a tensor use memory.
namespace trireme::ops::testing {
namespace {

using trireme::testing::HostLauncher;

constexpr std::int64_t kWidth = 8192;
constexpr std::int64_t kRows = (std::int64_t{1} << 31) / kWidth + 2;

/// Maps pages that use memory only if they are touched. The address sanitizer would use an eighth of
/// every tensor.
class SparseMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    bytes = std::max<std::size_t>(bytes, 1);
    void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) fail(ErrorKind::resource, "cannot map {} bytes", bytes);
    return {data, new Mapping{data, bytes}, &unmap, c10::Device(c10::kCPU)};
  }

  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  struct Mapping {
    void* data;
    std::size_t bytes;
  };

  static void unmap(void* mapping) {
    const std::unique_ptr<Mapping> owned(static_cast<Mapping*>(mapping));
    ::munmap(owned->data, owned->bytes);
  }
};

class CudaLarge : public ::testing::Test {
 protected:
  CudaLarge() {
    host_.only_last_block = true;
    c10::SetCPUAllocator(&memory_);
    at::manual_seed(1);
  }

  ~CudaLarge() override { c10::SetCPUAllocator(before_); }

  CudaLarge(const CudaLarge&) = delete;
  CudaLarge& operator=(const CudaLarge&) = delete;

  SparseMemory memory_;
  c10::Allocator* before_ = c10::GetCPUAllocator();
  HostLauncher host_;
};

at::Tensor last_row(const at::Tensor& x) {
  return x.narrow(0, x.size(0) - 1, 1);
}

/// Returns a tensor with random values in its last row; the others are zero.
at::Tensor large() {
  at::Tensor x = at::empty({kRows, kWidth}, at::kBFloat16);
  last_row(x).copy_(random({1, kWidth}));
  return x;
}

TEST_F(CudaLarge, Norm) {
  const at::Tensor x = large();
  const at::Tensor weight = random({kWidth}).to(at::kBFloat16);
  const AddRmsNormOutput out = cuda::norm(x, {}, weight, kEps);
  const AddRmsNormOutput plain =
      add_rms_norm_forward(exact(last_row(x)), {}, exact(weight), kEps, Path::plain);
  expect_close(last_row(out.y), plain.y, 6e-3, "y");
  // The last block has many rows, so the gradient is tested on rows that it can process.
  const cuda::Chunks chunks = cuda::row_chunks(kRows);
  const std::int64_t own = kRows - (chunks.count - 1) * chunks.rows;
  const at::Tensor rows = x.narrow(0, kRows - own, own);
  rows.copy_(last_row(x).clone().expand({own, kWidth}));
  out.rstd.fill_(1.25);
  const RmsNormGrads grads = cuda::norm_backward(x, {}, x, weight, out.rstd);
  const RmsNormGrads expected =
      add_rms_norm_backward(exact(last_row(x)), {}, exact(last_row(x)), exact(weight),
                            at::full({1}, 1.25, at::kDouble), Path::plain);
  expect_close(last_row(grads.x), expected.x, 6e-3, "gradient of x");
}

TEST_F(CudaLarge, Rope) {
  const at::Tensor q = large().view({1, kRows, 64, kWidth / 64});
  const at::Tensor k = at::empty({1, kRows, 1, kWidth / 64}, at::kBFloat16);
  QkNormRope setup;
  setup.tables = rope_tables(4, kWidth / 64, 1e4, at::kFloat);
  setup.positions = at::full({1, kRows}, 3, at::kLong);
  const auto [out, unused] = cuda::rope(q, k, setup);
  QkNormRope wide = setup;
  wide.positions = at::full({1, 1}, 3, at::kLong);
  const at::Tensor last = q.narrow(1, kRows - 1, 1);
  const at::Tensor qkv = at::cat({last, last, last}, 2).view({1, 1, -1});
  const QueryKeyValue plain = qkv_norm_rope_forward(exact(qkv), 64, 64, wide, Path::plain);
  expect_close(out.narrow(2, kRows - 1, 1), plain.q, 6e-3, "q");
}

TEST_F(CudaLarge, GatedActivation) {
  const at::Tensor gate_up = large();
  const Activation silu = find_activation("silu");
  const at::Tensor y = cuda::gated(gate_up, silu);
  expect_close(last_row(y), gated_forward(exact(last_row(gate_up)), silu, Path::plain), 6e-3, "y");
  last_row(y).fill_(0.5);
  const at::Tensor grad = cuda::gated_backward(y, gate_up, silu);
  expect_close(last_row(grad),
               gated_backward(exact(last_row(y)), exact(last_row(gate_up)), silu, Path::plain),
               6e-3, "gradient");
}

TEST_F(CudaLarge, Dropout) {
  const at::Tensor x = large().view({1, kRows, kWidth});
  DropoutMask mask;
  mask.p = 0.5;
  mask.samples = at::full({1}, 7, at::kLong);
  mask.positions = at::empty({1, kRows}, at::kLong);
  mask.positions[0][kRows - 1] = 9;
  DropoutMask last = mask;
  last.positions = mask.positions.narrow(1, kRows - 1, 1);
  EXPECT_TRUE(cuda::dropout(x, mask)
                  .narrow(1, kRows - 1, 1)
                  .equal(dropout_apply(x.narrow(1, kRows - 1, 1), last, Path::plain)));
}

TEST_F(CudaLarge, CrossEntropy) {
  const at::Tensor logits = large();
  const at::Tensor expected = exact(last_row(logits)).log_softmax(1);
  const at::Tensor targets = at::full({kRows}, 5, at::kLong);
  const at::Tensor losses = at::empty({kRows}, at::kFloat);
  const at::Tensor statistics = cuda::class_statistics(logits, targets, 0);
  expect_close(statistics[2][kRows - 1], last_row(logits)[0][5], 0, "the target's logit");
  cuda::cross_entropy(logits, targets, {}, losses, {1.0}, /*want_grads=*/true);
  expect_close(losses[kRows - 1], -expected[0][5], 4e-6, "loss");
  const at::Tensor grad = expected.exp();
  grad[0][5] -= 1;
  expect_close(last_row(logits), grad, 6e-3, "gradient");
}

TEST_F(CudaLarge, Embedding) {
  const at::Tensor grads = large();
  const at::Tensor table = at::zeros({3, kWidth});
  const at::Tensor index = at::arange(grads.size(0), at::kLong).eq(grads.size(0) - 1).to(at::kLong);
  cuda::add_embedding_gradient(table, index, grads);
  expect_close(table[1], last_row(grads)[0], 4e-6, "row of the last token");
}

TEST_F(CudaLarge, Fp8) {
  const at::Tensor x = large();
  const at::Tensor scale = at::full({}, 16.0, at::kFloat);
  const Fp8Both found = cuda::quantize_fp8(x, scale, scale, at::kFloat8_e4m3fn);
  constexpr std::int64_t kTile = cuda::kFp8Tile;
  const at::Tensor last = last_row(x).narrow(1, kWidth - kTile, kTile);
  const at::Tensor expected =
      quantize_fp8(last, scale, at::kFloat8_e4m3fn, Path::plain).codes.view(at::kByte);
  const auto bytes = [](const Fp8Matrix& matrix) { return matrix.codes.view(at::kByte); };
  EXPECT_TRUE(last_row(bytes(found.by_rows)).narrow(1, kWidth - kTile, kTile).equal(expected));
  EXPECT_TRUE(bytes(found.by_columns)
                  .narrow(0, kWidth - kTile, kTile)
                  .select(1, kRows - 1)
                  .equal(expected[0]));
  EXPECT_TRUE(last_row(cuda::fp8_row_amax(x)).equal(row_amax_of(last_row(x), Path::plain)));
}

TEST_F(CudaLarge, AdamW) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 31) + 4096;
  constexpr std::int64_t kLast = 4096;  // one block
  const auto make = [&](at::ScalarType type) {
    at::Tensor x = at::empty({kCount}, type);
    x.narrow(0, kCount - kLast, kLast).fill_(0.5);
    return x;
  };
  const AdamWTensors piece{make(at::kFloat), make(at::kFloat),    make(at::kFloat),
                                 make(at::kFloat), make(at::kBFloat16), 0};
  cuda::adamw({piece}, {.lr = 0.25, .beta1 = 0, .beta2 = 0, .eps = 0}, at::ones({}));
  // Without averages, the update is the sign of the gradient.
  EXPECT_TRUE(
      piece.weights.narrow(0, kCount - kLast, kLast).sub(0.25).abs().lt(1e-6).all().item<bool>());
  EXPECT_TRUE(piece.copy.narrow(0, kCount - kLast, kLast).eq(0.25).all().item<bool>());
}

}  // namespace
}  // namespace trireme::ops::testing
