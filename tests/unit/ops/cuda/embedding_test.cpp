#include "ops/embedding.hpp"

#include "ops/cuda/embedding.hpp"
#include "unit/ops/cuda/compare.hpp"

namespace trireme::ops::testing {
namespace {

using trireme::testing::HostLauncher;

/// Returns `count` indices with short runs, then runs of some segments when sorted.
at::Tensor some_index(std::int64_t count, std::int64_t rows) {
  const at::Tensor index = at::randint(rows, {count}, at::kLong);
  index.narrow(0, count / 3, count / 3).fill_(rows / 2);
  return index.index({at::randperm(count)});
}

void expect_equals_plain(const at::Tensor& index, std::int64_t rows, std::int64_t width,
                         const CudaCase& one, const std::string& label) {
  const at::Tensor grads = random({index.numel(), width}).to(one.dtype);
  const at::Tensor table = random({rows, width}).to(at::kFloat);
  const at::Tensor plain = exact(table);
  const at::Tensor again = table.clone();
  add_embedding_gradient(plain, index, exact(grads), Path::plain);
  cuda::add_embedding_gradient(table, index, grads);
  cuda::add_embedding_gradient(again, index, grads);
  expect_close(table, plain, 4e-6, label);
  EXPECT_TRUE(table.equal(again)) << label;
}

TEST(CudaEmbedding, EqualsThePlainPathForOddSizes) {
  at::manual_seed(1);
  for_cuda_cases([](const CudaCase& one, const std::string& label, const HostLauncher&) {
    for (const std::int64_t width : {1, 7, 64, 1032}) {
      for (const std::int64_t count : {1, 3, 64, 65, 500})
        expect_equals_plain(some_index(count, 37), 37, width, one,
                            label + std::to_string(count) + " x " + std::to_string(width));
    }
  });
}

TEST(CudaEmbedding, AddsRunsThatBeginOrEndAtASegment) {
  at::manual_seed(2);
  const HostLauncher host;
  const CudaCase one{at::kFloat, 1e-5};
  for (const std::vector<std::int64_t>& runs :
       std::vector<std::vector<std::int64_t>>{{64, 64, 64},
                                              {192},
                                              {63, 1, 65, 127, 2},
                                              {1, 200, 64, 1},
                                              {32, 64, 96, 128},
                                              {65, 63, 64, 8}}) {
    std::vector<at::Tensor> parts;
    for (const std::int64_t run : runs)
      parts.push_back(at::full({run}, static_cast<std::int64_t>(parts.size()), at::kLong));
    expect_equals_plain(at::cat(parts), 6, 24, one, "runs of " + std::to_string(runs[0]));
  }
}

TEST(CudaEmbedding, TakesNoRows) {
  const HostLauncher host;
  const at::Tensor table = at::ones({3, 8});
  cuda::add_embedding_gradient(table, at::empty({0}, at::kLong), at::empty({0, 8}));
  EXPECT_TRUE(table.equal(at::ones({3, 8})));
}

}  // namespace
}  // namespace trireme::ops::testing
