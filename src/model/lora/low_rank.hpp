#pragma once
#include <ATen/ATen.h>

#include <vector>

#include "model/weighted.hpp"
#include "ops/product.hpp"

/// The products of LoRA adapters beside one linear.
namespace trireme::model::weighted {

inline at::Tensor as_rows(const at::Tensor& x) {
  return x.reshape({-1, x.size(-1)});
}

/// The adapters of one linear, with the arithmetic of all their terms.
struct LowRank {
  parallel::ParamRegistry* registry;
  AdaptersUse use;

  [[nodiscard]] at::Tensor dropped(const at::Tensor& x) const {
    return use.dropout ? ops::dropout_apply(x, *use.dropout, use.path) : x;
  }

  /// Computes scale * A x: [tokens, terms * rank].
  [[nodiscard]] at::Tensor inner(const at::Tensor& x) const {
    const at::Tensor a = registry->weight(use.adapters->a);
    return ops::product(as_rows(dropped(x)), a.t()).mul_(use.adapters->scale);
  }

  /// Calls `call` with each term, its B, its columns of `inner` and its columns of `y`, as rows.
  template <class Call>
  void for_each_term(const at::Tensor& inner, const at::Tensor& y, Call call) const {
    const std::int64_t rank = use.adapters->rank;
    std::int64_t first = 0;
    for (const Adapters::Term& term : use.adapters->terms) {
      const at::Tensor b = registry->weight(term.b);  // [rows, rank]
      call(term, b, inner.narrow(1, first, rank), y.narrow(1, term.first_row, b.size(0)));
      first += rank;
    }
  }

  void add_output(const at::Tensor& inner, const at::Tensor& y) const {
    for_each_term(inner, as_rows(y), [](const auto&, auto& b, const auto& of_a, at::Tensor of_y) {
      ops::add_product(of_a, b.t(), of_y);
    });
  }

  /// Returns the adapter terms of y [B, T, rows] as one tensor; x is [B, T, in].
  [[nodiscard]] at::Tensor output(const at::Tensor& inner, const at::Tensor& x,
                                  std::int64_t rows) const {
    const at::Tensor first = registry->weight(use.adapters->terms.front().b);
    if (first.size(0) == rows)
      return ops::product(inner, first.t()).view({x.size(0), x.size(1), rows});
    const at::Tensor sum = at::zeros({x.size(0), x.size(1), rows}, x.options());
    add_output(inner, sum);
    return sum;
  }

  /// Computes the gradient of A x, [tokens, terms * rank], from grad_y.
  [[nodiscard]] at::Tensor inner_grad(const at::Tensor& inner, const at::Tensor& grad_y) const {
    const at::Tensor grad = at::empty_like(inner);
    for_each_term(grad, as_rows(grad_y), [](const auto&, auto& b, at::Tensor of_a, auto of_y) {
      of_a.copy_(ops::product(of_y, b));  // writing the product into strided columns is slower
    });
    return grad.mul_(use.adapters->scale);
  }

  /// Returns the adapter part of the gradient of x [B, T, in] as one tensor.
  [[nodiscard]] at::Tensor input_grad(const at::Tensor& inner_grad,
                                      const at::Tensor& grad_y) const {
    const at::Tensor a = registry->weight(use.adapters->a);
    std::vector<std::int64_t> shape = grad_y.sizes().vec();
    shape.back() = a.size(1);
    const at::Tensor grad = ops::product(inner_grad, a).view(shape);
    return use.dropout ? ops::dropout_apply(grad, *use.dropout, use.path) : grad;
  }

  void add_input_grad(const at::Tensor& inner_grad, const at::Tensor& grad_x) const {
    if (use.dropout) {
      grad_x.add_(input_grad(inner_grad, grad_x));
    } else {
      ops::add_product(inner_grad, registry->weight(use.adapters->a), as_rows(grad_x));
    }
  }

  void give(const at::Tensor& x, const at::Tensor& inner, const at::Tensor& inner_grad,
            const at::Tensor& grad_y) const {
    // With the narrow factor on the left and a transposed result, the product takes a quarter of
    // the time.
    for_each_term(inner, as_rows(grad_y), [&](auto& term, auto&, auto of_a, auto of_y) {
      registry->add_gradient(term.b, ops::outer_product(of_a, of_y).t());
    });
    registry->add_gradient_of_linear(use.adapters->a, dropped(x), inner_grad);
  }
};

}  // namespace trireme::model::weighted
