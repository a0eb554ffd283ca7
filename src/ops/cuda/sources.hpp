#pragma once
#include <span>
#include <string_view>

namespace trireme::ops::cuda {

/// A file that kernels include by `name`, relative to src.
struct SourceFile {
  const char* name;
  const char* text;
};

/// Returns the files of kernels/ and the headers that kernels share with CPU code; the build embeds their texts in the library.
std::span<const SourceFile> source_files();

}  // namespace trireme::ops::cuda
