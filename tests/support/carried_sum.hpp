#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <vector>

#include "core/exact_sum.hpp"

namespace trireme::testing {

/// Returns the words of an exact sum after all carries, followed by the number of values that are
/// not finite. Equal sums then have equal words. Before, words depend on the number of threads of the
/// host, because each thread carries.
///   words  int64 [ExactSum::kWords + 1] in host memory
inline std::vector<std::int64_t> carried_words(const at::Tensor& words) {
  ExactSum sum;
  std::copy_n(words.const_data_ptr<std::int64_t>(), sum.words().size(), sum.words().begin());
  std::vector<std::int64_t> before;
  do {
    before.assign(sum.words().begin(), sum.words().end());
    sum.carry();
  } while (!std::ranges::equal(sum.words(), before));
  return before;
}

}  // namespace trireme::testing
