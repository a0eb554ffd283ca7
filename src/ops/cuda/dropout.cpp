#include "ops/cuda/dropout.hpp"

#include <ATen/ATen.h>

namespace trireme::ops::cuda {

bool accepts_dropout(const at::Tensor& x) {
  return accepts(x, {&kDropout});
}

at::Tensor dropout(const at::Tensor& x_in, const DropoutMask& mask) {
  const at::Tensor x = x_in.contiguous();
  const at::Tensor samples = mask.samples.to(x.device()).contiguous();
  const at::Tensor positions = mask.positions.to(x.device()).contiguous();
  at::Tensor y = at::empty_like(x);
  const std::int64_t width = x.size(2);
  launch(kDropout, x, {width == 0 ? 0 : x.size(0) * x.size(1), threads_for_row(width, x)},
         {.x = x.data_ptr(),
          .y = y.data_ptr(),
          .samples = data_of<std::int64_t>(samples),
          .positions = data_of<std::int64_t>(positions),
          .key = dropout_key(mask),
          .first_feature = mask.first_feature,
          .length = x.size(1),
          .width = width,
          .threshold = drop_threshold(mask.p),
          .factor = static_cast<float>(1.0 / (1.0 - mask.p))});
  return y;
}

}  // namespace trireme::ops::cuda
