#include "device/torch_errors.hpp"

#include <c10/util/Exception.h>

#include <string_view>

namespace trireme::device {
namespace {

/// Recognizes errors of LibTorch's own allocators by their texts, because they have no type.
bool says_out_of_memory(std::string_view text) {
  return text.find("allocate memory") != std::string_view::npos ||
         text.find("out of memory") != std::string_view::npos;
}

}  // namespace

void rethrow_torch_error() {
  try {
    throw;
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    if (dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr || says_out_of_memory(text))
      fail(
          ErrorKind::resource,
          "out of memory: lower train.micro_batch or train.seq_len, set parallel.recompute full, or use more ranks or a smaller model ({})",
          text);
    fail(ErrorKind::internal, "{}", text);
  }
}

}  // namespace trireme::device
