#pragma once
#include <ATen/Parallel.h>

namespace trireme::ops::testing {

/// Sets LibTorch's number of threads for one test.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }

  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

}  // namespace trireme::ops::testing
