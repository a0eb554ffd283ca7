#include "ops/grouped.hpp"

#include <ATen/ATen.h>

#include "core/operation_record.hpp"
#include "ops/matmul.hpp"
#include "ops/product.hpp"
#include "ops/upload.hpp"

namespace trireme::ops {
namespace {

template <class Call>
void for_each_expert(const std::vector<std::int64_t>& bounds, Call call) {
  for (std::size_t expert = 0; expert + 1 < bounds.size(); ++expert) {
    const std::int64_t count = bounds[expert + 1] - bounds[expert];
    if (count > 0) call(static_cast<std::int64_t>(expert), bounds[expert], count);
  }
}

double flops_of(const at::Tensor& rows, std::int64_t outs) {
  return 2.0 * static_cast<double>(rows.numel()) * static_cast<double>(outs);
}

/// Returns true for 16-byte alignment with one of the last two dimensions contiguous.
bool is_aligned(const at::Tensor& matrices) {
  const std::int64_t step = 16 / matrices.element_size();
  const std::int64_t row = matrices.stride(-2);
  const std::int64_t column = matrices.stride(-1);
  const std::int64_t between = matrices.dim() == 3 ? matrices.stride(0) : 0;
  return reinterpret_cast<std::uintptr_t>(matrices.const_data_ptr()) % 16 == 0 &&
         between % step == 0 &&
         ((column == 1 && row % step == 0) || (row == 1 && column % step == 0));
}

/// Returns true if ATen's operator needs no bounds on the host: bf16 on Hopper and Blackwell
/// (CUTLASS), and on devices of other kinds, which have their own operators.
bool has_grouped_kernel(const at::Tensor& a, const at::Tensor& b, Path path) {
  if (path == Path::plain || a.scalar_type() != at::kBFloat16 || a.size(0) == 0) return false;
  const int generation = cuda_generation(a.device());
  const bool has = a.is_cuda() ? generation == 9 || generation == 10 : !a.is_cpu();
  return has && is_aligned(a) && is_aligned(b);
}

/// Returns the number of rows to multiply for an expert with `count` rows. oneDNN, which multiplies
/// bf16 on some CPUs, generates code for every number of rows (0.4 ms), and the number differs in
/// every step, so it is rounded up.
std::int64_t rows_taken(const at::Tensor& rows, std::int64_t count) {
  if (!rows.is_cpu() || rows.element_size() != 2 || widens_products(rows) ||
      has_packed_matmul(rows))
    return count;
  const std::int64_t step = count <= 128 ? 32 : 64;
  return (count + step - 1) / step * step;
}

/// Returns rows [first, first + count), padded with zeros to rows_taken.
at::Tensor padded(const at::Tensor& rows, std::int64_t first, std::int64_t count) {
  const at::Tensor own = rows.narrow(0, first, count);
  const std::int64_t all = rows_taken(rows, count);
  return all == count ? own : at::constant_pad_nd(own, {0, 0, 0, all - count});
}

/// Writes rows [first, first + count) times weight^T to the same rows of out. It may also overwrite
/// the rows after them, which the following experts write later.
void put_of_expert(const at::Tensor& rows, const at::Tensor& weight, std::int64_t first,
                   std::int64_t count, const at::Tensor& out) {
  const std::int64_t all = rows_taken(rows, count);
  if (first + all <= rows.size(0)) {
    put_product(rows.narrow(0, first, all), weight.t(), out.narrow(0, first, all));
  } else {
    const at::Tensor all_rows = product(padded(rows, first, count), weight.t());
    out.narrow(0, first, count).copy_(all_rows.narrow(0, 0, count));
  }
}

}  // namespace

ExpertBounds::ExpertBounds(std::vector<std::int64_t> host)
    : copies_(std::make_shared<Copies>(Copies{std::move(host), {}, {}})) {}

ExpertBounds::ExpertBounds(at::Tensor on_device)
    : copies_(std::make_shared<Copies>(Copies{{}, std::move(on_device), {}})) {}

const std::vector<std::int64_t>& ExpertBounds::host() const {
  if (copies_->host.empty()) {
    const at::Tensor bounds = copies_->on_device.to(at::kCPU);
    const auto* const first = bounds.const_data_ptr<std::int64_t>();
    copies_->host.assign(first, first + bounds.numel());
    copies_->on_device.reset();
  }
  return copies_->host;
}

const at::Tensor& ExpertBounds::ends(at::Device device) const {
  if (!copies_->ends.defined()) {
    const at::Tensor all = copies_->on_device.defined()
                               ? copies_->on_device
                               : upload(at::tensor(copies_->host, at::kLong), device);
    copies_->ends = all.slice(0, 1).to(at::kInt);
  }
  return copies_->ends;
}

at::Tensor aten_grouped_product(const at::Tensor& rows, const at::Tensor& weights,
                                const at::Tensor& ends) {
  return at::_grouped_mm(rows, weights.transpose(1, 2), ends);
}

at::Tensor aten_grouped_outer(const at::Tensor& a, const at::Tensor& b, const at::Tensor& ends) {
  return at::_grouped_mm(a.t(), b, ends);
}

at::Tensor grouped_product(const at::Tensor& rows, const at::Tensor& weights,
                           const ExpertBounds& bounds, Path path) {
  if (has_grouped_kernel(rows, weights, path)) {
    const ProductMark mark(StepWork::matmul_forward, flops_of(rows, weights.size(1)));
    return aten_grouped_product(rows, weights, bounds.ends(rows.device()));
  }
  const at::Tensor out = at::empty({rows.size(0), weights.size(1)}, rows.options());
  for_each_expert(bounds.host(), [&](std::int64_t expert, std::int64_t first, std::int64_t count) {
    put_of_expert(rows, weights[expert], first, count, out);
  });
  return out;
}

void add_grouped_outer(const at::Tensor& a, const at::Tensor& b, const ExpertBounds& bounds,
                       const at::Tensor& sums, Path path) {
  if (has_grouped_kernel(a, b, path)) {
    const ProductMark mark(StepWork::matmul_dw, flops_of(a, b.size(1)));
    sums.add_(aten_grouped_outer(a, b, bounds.ends(a.device())));
    return;
  }
  for_each_expert(bounds.host(), [&](std::int64_t expert, std::int64_t first, std::int64_t count) {
    at::Tensor sum = sums[expert];
    const at::Tensor left = padded(a, first, count);
    const at::Tensor right = padded(b, first, count);
    if (sum.scalar_type() == a.scalar_type()) {
      add_product(left.t(), right, sum);
    } else {
      add_outer_product(left, right, sum);
    }
  });
}

}  // namespace trireme::ops
