#pragma once
#include <utility>

#include "core/error.hpp"

namespace trireme {

/// The exception of LibTorch in flight as an Error: memory that is not there is a resource, all
/// else internal, without LibTorch's own stack. Rethrows what is not LibTorch's as it is.
[[noreturn]] void rethrow_torch_error();

/// Runs `body` and returns its result. Around whatever may allocate tensors, where errors leave.
template <class Body>
decltype(auto) with_torch_errors(Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception&) {
    rethrow_torch_error();
  }
}

}  // namespace trireme
