#include "optim/orthogonalize.hpp"

#include <ATen/ATen.h>

#include <limits>
#include <span>

namespace trireme::optim {
namespace {

/// One iteration computes a X + b (X X^T) X + c (X X^T)^2 X.
struct Coefficients {
  double a, b, c;
};

constexpr std::array<Coefficients, 5> kPolarExpress{{
    {8.156554524902461, -22.48329292557795, 15.878769915207462},
    {4.042929935166739, -2.808917465908714, 0.5000178451051316},
    {3.8916678022926607, -2.772484153217685, 0.5060648178503393},
    {3.285753657755655, -2.3681294933425376, 0.46449024233003106},
    {2.3465413258596377, -1.7097828382687081, 0.42323551169305323},
}};

constexpr Coefficients kQuintic{3.4445, -4.7750, 2.0315};
constexpr std::array<Coefficients, 5> kNewtonSchulz{kQuintic, kQuintic, kQuintic, kQuintic,
                                                    kQuintic};

/// Returns `x` divided by its Frobenius norm, so that all singular values are at most 1.
at::Tensor scaled(const at::Tensor& x, double factor, double eps) {
  const at::Tensor norm = at::linalg_vector_norm(x, 2, at::IntArrayRef{1, 2}, /*keepdim=*/true);
  return x / (norm * factor + eps);
}

/// Returns b A + c A^2 for symmetric A.
at::Tensor higher_terms(const at::Tensor& gram, const Coefficients& k) {
  return at::baddbmm(gram, gram, gram, k.b, k.c);
}

at::Tensor iterated(at::Tensor x, std::span<const Coefficients> iterations) {
  for (const Coefficients& k : iterations) {
    const at::Tensor terms = higher_terms(at::bmm(x, x.transpose(1, 2)), k);
    x = at::baddbmm(x, terms, x, k.a, 1);
  }
  return x;
}

/// Like iterated(). The iterations change only small square matrices, because every iteration
/// multiplies X from the left by a polynomial of X X^T, and all these polynomials commute.
at::Tensor iterated_by_gram(const at::Tensor& x, std::span<const Coefficients> iterations) {
  at::Tensor gram = at::bmm(x, x.transpose(1, 2));
  at::Tensor product;
  for (const Coefficients& k : iterations) {
    at::Tensor polynomial = higher_terms(gram, k);
    polynomial.diagonal(0, 1, 2).add_(k.a);
    product = product.defined() ? at::bmm(polynomial, product) : polynomial;
    gram = at::bmm(at::bmm(polynomial, gram), polynomial);
  }
  return at::bmm(product, x);
}

at::Tensor by_singular_values(const at::Tensor& x) {
  const auto [u, values, vh] = at::linalg_svd(x, /*full_matrices=*/false);
  const double eps = x.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                    : std::numeric_limits<float>::epsilon();
  const auto side = static_cast<double>(std::max(x.size(1), x.size(2)));
  const at::Tensor limit = values.amax(-1, /*keepdim=*/true) * (eps * side);
  const at::Tensor kept = values.gt(limit).to(x.scalar_type());
  return at::bmm(u * kept.unsqueeze(1), vh);
}

at::Tensor of_wide(const at::Tensor& x, Orthogonalize method) {
  switch (method) {
    case Orthogonalize::polar_express:
      return iterated(scaled(x, 1.02, 1e-6), kPolarExpress);
    case Orthogonalize::newton_schulz:
      return iterated(scaled(x, 1, 1e-7), kNewtonSchulz);
    case Orthogonalize::gram:
      return iterated_by_gram(scaled(x, 1.02, 1e-6), kPolarExpress);
    case Orthogonalize::exact:
      break;
  }
  return by_singular_values(x);
}

}  // namespace

at::Tensor orthogonalized(const at::Tensor& x, Orthogonalize method) {
  if (x.size(1) <= x.size(2)) return of_wide(x, method);
  return of_wide(x.transpose(1, 2), method).transpose(1, 2);
}

}  // namespace trireme::optim
