#pragma once
#include <utility>

#include "core/error.hpp"

namespace trireme::device {

/// Rethrows the current LibTorch exception as Error, without LibTorch's stack trace: kind
/// `resource` if memory is exhausted, otherwise `internal`. Rethrows other exceptions unchanged.
[[noreturn]] void rethrow_torch_error();

/// Runs `body`, converts its LibTorch exceptions by rethrow_torch_error(), and returns its result.
template <class Body>
decltype(auto) with_torch_errors(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception&) {
    rethrow_torch_error();
  }
}

}  // namespace trireme::device
