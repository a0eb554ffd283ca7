#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "comm/communicator.hpp"
#include "parallel/tensor/tensor_group.hpp"

/// Matrix products that overlap with the communication of their tokens between tp ranks. If
/// TensorGroup::chunks() is K, the tokens of a row are transferred in K chunks. While one chunk is
/// transferred, another is multiplied. The functions have no autograd. Source: Wang et al.,
/// "Overlap communication with dependent computation via decomposition in large deep learning
/// models", ASPLOS 2023.
namespace trireme::parallel {

struct WholeAndProduct {
  at::Tensor whole;    // [B, T, in]
  at::Tensor product;  // [B, T, out]
};

/// Returns TensorGroup::whole() of x and its product with matrix [in, out].
WholeAndProduct whole_and_product(const TensorGroup& group, const at::Tensor& x,
                                  const at::Tensor& matrix);

/// TensorGroup::sum() of y [B, T, in] times matrix [in, out]. The constructor computes the products
/// and starts the sums; wait() completes them. If `onto` [B, T, out] is defined, the products are
/// added to `onto` before the sum over ranks, and `onto` is overwritten.
class ProductSum {
 public:
  ProductSum(const TensorGroup& group, const at::Tensor& y, const at::Tensor& matrix,
             const at::Tensor& onto = {});
  /// Starts TensorGroup::sum() of a product that the caller has computed, in one chunk. The sum may
  /// overwrite the product.
  ProductSum(const TensorGroup& group, const at::Tensor& product);

  /// Returns the sum for this rank's tokens of the residual stream. Call it once.
  [[nodiscard]] at::Tensor wait();

 private:
  struct Chunk {
    at::Tensor sent;
    at::Tensor received;
    at::Tensor place;    // destination in the sum if `received` is a copy
    comm::WorkPtr work;  // destroyed first, because it may still read and write the tensors
  };

  void sum_tokens(const TensorGroup& group, const at::Tensor& y, const at::Tensor& matrix,
                  const at::Tensor& onto);
  void poll();
  void sum_product(const TensorGroup& group, const at::Tensor& product);
  void scatter_product(const TensorGroup& group, const at::Tensor& product);
  void scatter_tokens(const TensorGroup& group, const at::Tensor& y, const at::Tensor& matrix,
                      const at::Tensor& onto);

  at::Tensor sum_;
  std::vector<Chunk> chunks_;
};

}  // namespace trireme::parallel
