#include "train/verify/bench_matmul.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/timer.hpp"
#include "device/device.hpp"
#include "device/precision.hpp"
#include "ops/product.hpp"

namespace trireme::train {
namespace {

constexpr int kLeastRepeats = 3;

/// The best times of one product and of the library's product.
struct BestTimes {
  double own_s = 1e30;
  double library_s = 1e30;
};

template <class Own, class Library>
BestTimes best_times(double seconds, Own own, Library library) {
  const auto took = [](auto& call) {
    const Timer timer;
    call();
    return timer.seconds();
  };
  took(own);  // oneDNN generates code for each new shape
  took(library);
  BestTimes best;
  const Timer total;
  for (int i = 0; i < kLeastRepeats || total.seconds() < seconds; ++i) {
    best.own_s = std::min(best.own_s, took(own));
    best.library_s = std::min(best.library_s, took(library));
  }
  return best;
}

}  // namespace

ProductFigures measure_products(const ProductShape& shape, const std::string& precision,
                                double seconds) {
  const device::ParamDTypes types = device::precision_dtypes(precision, "--precision");
  const at::NoGradGuard no_grad;
  const auto random = [&](std::int64_t rows, std::int64_t columns) {
    return at::randn({rows, columns}, at::kFloat).to(types.compute);
  };
  const at::Tensor x = random(shape.m, shape.k);
  const at::Tensor w = random(shape.n, shape.k);
  const at::Tensor grad_y = random(shape.m, shape.n);
  at::Tensor sum = at::zeros({shape.n, shape.k}, types.main);
  const double flops = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) *
                       static_cast<double>(shape.k);
  ProductFigures figures;
  const auto measure = [&](double ProductRates::*rate, auto own, auto library) {
    const BestTimes best = best_times(seconds, own, library);
    figures.own.*rate = flops / best.own_s;
    figures.library.*rate = flops / best.library_s;
  };
  measure(
      &ProductRates::forward, [&] { ops::product(x, w.t()); }, [&] { at::linear(x, w); });
  measure(
      &ProductRates::dx, [&] { ops::product(grad_y, w); }, [&] { at::mm(grad_y, w); });
  measure(
      &ProductRates::dw, [&] { ops::add_outer_product(grad_y, x, sum); },
      [&] { sum.add_(at::mm(grad_y.t(), x)); });
  figures.peak_flops = device::measured_peak_flops(at::kCPU, types.compute);
  return figures;
}

}  // namespace trireme::train
