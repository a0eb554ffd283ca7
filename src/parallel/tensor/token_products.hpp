#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.hpp"
#include "parallel/tensor/tensor_group.hpp"

/// Products of tokens with a matrix beside the exchange of these tokens over tp. With
/// `TensorGroup::chunks` K a row's tokens travel in K pieces: while one is on its way the product of
/// another runs. Without autograd. Source: Wang et al., "Overlap communication with dependent
/// computation via decomposition in large deep learning models", ASPLOS 2023.
namespace trireme {

struct WholeAndProduct {
  at::Tensor whole;    // [B, T, in]
  at::Tensor product;  // [B, T, out]
};

/// TensorGroup::whole of x, and that times matrix [in, out].
WholeAndProduct whole_and_product(const TensorGroup& group, const at::Tensor& x,
                                  const at::Tensor& matrix);

/// TensorGroup::sum of y [B, T, in] times matrix [in, out]: the products are formed at once, their
/// sums are on their way until they are waited for. `onto` [B, T, out], where defined, is a part of
/// this rank's that the products are added to; it is used up.
class ProductSum {
 public:
  ProductSum(const TensorGroup& group, const at::Tensor& y, const at::Tensor& matrix,
             const at::Tensor& onto = {});

  /// The sum, of this rank's tokens of the residual stream; once.
  [[nodiscard]] at::Tensor wait();

 private:
  struct Piece {
    at::Tensor sent;
    at::Tensor received;
    at::Tensor place;  // of it in the sum, where that is not contiguous
    WorkPtr work;      // destroyed first: it may still read and write the tensors
  };

  void sum_tokens(const TensorGroup& group, const at::Tensor& y, const at::Tensor& matrix,
                  const at::Tensor& onto);
  void poll();
  void scatter_tokens(const TensorGroup& group, const at::Tensor& y, const at::Tensor& matrix,
                      const at::Tensor& onto);

  at::Tensor sum_;
  std::vector<Piece> pieces_;
};

}  // namespace trireme
