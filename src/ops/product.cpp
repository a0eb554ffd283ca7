#include "ops/product.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/operation_record.hpp"
#include "ops/cpu/kernels.hpp"
#include "ops/matmul.hpp"

namespace trireme::ops {
namespace {

/// Number of rows widened at a time, so that they and their results stay in the cache.
constexpr std::int64_t kBlockRows = 512;

/// Returns true if oneDNN (used by LibTorch) multiplies bf16 faster than MKL multiplies fp32. On a
/// CPU without bf16 instructions, LibTorch uses its own loops, which are much slower than both.
bool multiplies_bf16_fast() {
#ifdef __x86_64__
  __builtin_cpu_init();
  return __builtin_cpu_supports("amx-bf16") || kernels::has_fast_pairs();
#else
  return true;
#endif
}

double flops_of(const at::Tensor& a, const at::Tensor& b) {
  return 2.0 * static_cast<double>(a.numel()) * static_cast<double>(b.size(1));
}

at::Tensor wide(const at::Tensor& x) {
  return x.to(at::kFloat);
}

template <class Body>
void for_blocks(std::int64_t rows, Body body) {
  for (std::int64_t first = 0; first < rows; first += kBlockRows)
    body(first, std::min(kBlockRows, rows - first));
}

std::vector<std::int64_t> product_sizes(const at::Tensor& a, const at::Tensor& b) {
  std::vector<std::int64_t> sizes = a.sizes().vec();
  sizes.back() = b.size(1);
  return sizes;
}

}  // namespace

bool widens_products(const at::Tensor& x) {
  if (!x.is_cpu() || x.element_size() != 2) return false;
  static const bool fast_bf16 = multiplies_bf16_fast();
  return x.scalar_type() != at::kBFloat16 || !fast_bf16;
}

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const ProductMark mark(StepWork::matmul_forward, flops_of(a, b));
  if (!takes_packed_matmul(a, b)) return widens_products(a) ? widened::product(a, b) : a.matmul(b);
  const at::Tensor out = at::empty(product_sizes(a, b), a.options());
  packed_matmul(a.reshape({-1, a.size(-1)}), b, out.view({-1, b.size(1)}), /*add=*/false);
  return out;
}

void put_product(const at::Tensor& a, const at::Tensor& b, at::Tensor out) {
  const ProductMark mark(StepWork::matmul_forward, flops_of(a, b));
  if (takes_packed_matmul(a, b)) {
    packed_matmul(a, b, out, /*add=*/false);
  } else if (widens_products(a)) {
    widened::put_product(a, b, std::move(out));
  } else {
    at::mm_out(out, a, b);
  }
}

void add_product(const at::Tensor& a, const at::Tensor& b, at::Tensor sum) {
  const ProductMark mark(StepWork::matmul_forward, flops_of(a, b));
  if (takes_packed_matmul(a, b)) {
    packed_matmul(a, b, sum, /*add=*/true);
  } else if (widens_products(a)) {
    widened::add_product(a, b, std::move(sum));
  } else {
    sum.addmm_(a, b);
  }
}

at::Tensor outer_product(const at::Tensor& a, const at::Tensor& b) {
  const ProductMark mark(StepWork::matmul_dw, flops_of(a, b));
  if (a.is_cuda() && a.element_size() == 2) return at::mm(a.t(), b, at::kFloat);
  if (takes_packed_matmul(a.t(), b)) {
    const at::Tensor out = at::empty({a.size(1), b.size(1)}, a.options().dtype(at::kFloat));
    packed_matmul(a.t(), b, out, /*add=*/false);
    return out;
  }
  return widens_products(a) ? widened::outer_product(a, b) : a.t().mm(b);
}

void add_outer_product(const at::Tensor& a, const at::Tensor& b, at::Tensor sum) {
  if (takes_packed_matmul(a.t(), b)) {
    const ProductMark mark(StepWork::matmul_dw, flops_of(a, b));
    packed_matmul(a.t(), b, sum, /*add=*/true);
  } else {
    sum.add_(outer_product(a, b));
  }
}

namespace widened {

at::Tensor product(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor out = at::empty(product_sizes(a, b), a.options());
  put_product(a.reshape({-1, a.size(-1)}), b, out.view({-1, b.size(1)}));
  return out;
}

void put_product(const at::Tensor& a, const at::Tensor& b, at::Tensor out) {
  const at::Tensor matrix = wide(b);
  for_blocks(a.size(0), [&](std::int64_t first, std::int64_t rows) {
    out.narrow(0, first, rows).copy_(wide(a.narrow(0, first, rows)).mm(matrix));
  });
}

void add_product(const at::Tensor& a, const at::Tensor& b, at::Tensor sum) {
  const at::Tensor matrix = wide(b);
  for_blocks(a.size(0), [&](std::int64_t first, std::int64_t rows) {
    sum.narrow(0, first, rows).add_(wide(a.narrow(0, first, rows)).mm(matrix));
  });
}

at::Tensor outer_product(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor sums;
  for_blocks(a.size(0), [&](std::int64_t first, std::int64_t rows) {
    const at::Tensor left = wide(a.narrow(0, first, rows)).t();
    const at::Tensor right = wide(b.narrow(0, first, rows));
    if (sums.defined()) {
      sums.addmm_(left, right);
    } else {
      sums = left.mm(right);
    }
  });
  return sums.defined() ? sums : at::zeros({a.size(1), b.size(1)}, a.options().dtype(at::kFloat));
}

}  // namespace widened
}  // namespace trireme::ops
