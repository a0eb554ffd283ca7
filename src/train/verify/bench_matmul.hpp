#pragma once
#include <cstdint>
#include <string>

namespace trireme::train {

/// A linear layer y [m, n] = x [m, k] W^T with W [n, k].
struct ProductShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
};

/// FLOP/s of the three products of a linear layer.
struct ProductRates {
  double forward = 0;  // x W^T
  double dx = 0;       // the gradient of x: grad_y W
  double dw = 0;       // the gradient of W, added to an fp32 sum (fp64 for fp64)
};

struct ProductFigures {
  ProductRates own;      // the products of a training step (ops/product.hpp)
  ProductRates library;  // these products by plain calls of LibTorch
  double peak_flops = 0;
};

/// Measures products on the CPU. The own and the library's products alternate, and the best repeat
/// of each counts. `seconds` is the least time of all repeats of one product. Throws Error(usage)
/// for an unknown precision.
ProductFigures measure_products(const ProductShape& shape, const std::string& precision,
                                double seconds);

}  // namespace trireme::train
