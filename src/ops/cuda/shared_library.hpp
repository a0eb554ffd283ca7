#pragma once
#include <dlfcn.h>

#include <string>

#include "core/error.hpp"

namespace trireme::ops::cuda {

/// Reads the address of a function into a pointer of its type. Throws Error(resource) if the
/// library has no such function.
template <class Function>
void read_symbol(void* library, const char* library_name, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  if (function == nullptr) fail(ErrorKind::resource, "{} has no function {}", library_name, name);
}

}  // namespace trireme::ops::cuda
