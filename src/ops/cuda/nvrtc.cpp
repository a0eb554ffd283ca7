#include "ops/cuda/nvrtc.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.hpp"
#include "ops/cuda/shared_library.hpp"
#include "ops/cuda/sources.hpp"
#ifdef TRIREME_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace trireme::ops::cuda {
namespace {

/// The part of the standard library that kernels use. NVRTC has no standard headers.
constexpr std::array<SourceFile, 3> kStandardHeaders{{
    {"cstdint", R"(#pragma once
namespace std {
using int32_t = int;
using uint32_t = unsigned;
using int64_t = long;
using uint64_t = unsigned long;
using uintptr_t = unsigned long;
}
)"},
    {"array", R"(#pragma once
namespace std {
template <class T, unsigned long N>
struct array {
  T values[N];
  constexpr const T& operator[](unsigned long i) const { return values[i]; }
  static constexpr unsigned long size() { return N; }
};
}
)"},
    {"string_view", R"(#pragma once
namespace std {
struct string_view {
  const char* text;
  constexpr string_view(const char* characters) : text(characters) {}
  constexpr const char* begin() const { return text; }
  constexpr const char* end() const {
    const char* last = text;
    while (*last != '\0') ++last;
    return last;
  }
};
}
)"},
}};

constexpr int kInvalidOption = 5;  // NVRTC_ERROR_INVALID_OPTION

/// NVRTC's functions. Declared here, because a machine that builds Trireme may lack nvrtc.h.
struct NvrtcFunctions {
  using Program = void*;
  int (*version)(int*, int*) = nullptr;
  int (*count_architectures)(int*) = nullptr;
  int (*architectures)(int*) = nullptr;
  int (*create)(Program*, const char*, const char*, int, const char* const*,
                const char* const*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*log_size)(Program, std::size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*cubin_size)(Program, std::size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  const char* (*error_text)(int) = nullptr;
};

/// Returns the names to load, in order: the CUDA version of LibTorch first. A wheel has NVRTC in the
/// directory of the CUDA runtime.
std::vector<std::string> library_names() {
  std::vector<std::string> names;
#ifdef TRIREME_HAVE_CUDA
  const std::string versioned = formatted("libnvrtc.so.{}", CUDART_VERSION / 1000);
  names.push_back(versioned);
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&cudaRuntimeGetVersion), &info) != 0 &&
      info.dli_fname != nullptr)
    names.push_back((std::filesystem::path(info.dli_fname).parent_path() / versioned).string());
#endif
  names.insert(names.end(), {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"});
  return names;
}

NvrtcFunctions load_nvrtc() {
  void* handle = nullptr;
  std::string first_error;
  std::string name;
  for (const std::string& candidate : library_names()) {
    handle = ::dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    name = candidate;
    if (handle != nullptr) break;
    if (first_error.empty()) first_error = ::dlerror();
  }
  if (handle == nullptr)
    fail(
        ErrorKind::resource,
        "cannot load NVRTC, the compiler of CUDA kernels ({}). LibTorch's CUDA wheels install it as "
        "nvidia-cuda-nvrtc. Install that wheel, or add the directory of libnvrtc to "
        "LD_LIBRARY_PATH.",
        first_error);
  NvrtcFunctions library;
  const char* const text = name.c_str();
  read_symbol(handle, text, "nvrtcVersion", library.version);
  read_symbol(handle, text, "nvrtcGetNumSupportedArchs", library.count_architectures);
  read_symbol(handle, text, "nvrtcGetSupportedArchs", library.architectures);
  read_symbol(handle, text, "nvrtcCreateProgram", library.create);
  read_symbol(handle, text, "nvrtcCompileProgram", library.compile);
  read_symbol(handle, text, "nvrtcDestroyProgram", library.destroy);
  read_symbol(handle, text, "nvrtcGetProgramLogSize", library.log_size);
  read_symbol(handle, text, "nvrtcGetProgramLog", library.log);
  read_symbol(handle, text, "nvrtcGetCUBINSize", library.cubin_size);
  read_symbol(handle, text, "nvrtcGetCUBIN", library.cubin);
  read_symbol(handle, text, "nvrtcGetErrorString", library.error_text);
  return library;
}

const NvrtcFunctions& nvrtc() {
  static const NvrtcFunctions library = load_nvrtc();  // loads again after an error
  return library;
}

void check_nvrtc(int code, const char* what) {
  if (code != 0) fail(ErrorKind::resource, "NVRTC failed: {}: {}", what, nvrtc().error_text(code));
}

/// Owns a program of NVRTC.
class Program {
 public:
  explicit Program(const std::string& source, const std::string& name) {
    std::vector<const char*> names;
    std::vector<const char*> texts;
    const auto add = [&](const SourceFile& file) {
      names.push_back(file.name);
      texts.push_back(file.text);
    };
    std::ranges::for_each(kStandardHeaders, add);
    std::ranges::for_each(source_files(), add);
    check_nvrtc(nvrtc().create(&program_, source.c_str(), (name + ".cu").c_str(),
                               static_cast<int>(names.size()), texts.data(), names.data()),
                "create a program");
  }

  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  Program(Program&&) = delete;
  Program& operator=(Program&&) = delete;

  ~Program() { nvrtc().destroy(&program_); }

  int compile(const std::vector<std::string>& options) {
    std::vector<const char*> texts;
    for (const std::string& option : options) texts.push_back(option.c_str());
    return nvrtc().compile(program_, static_cast<int>(texts.size()), texts.data());
  }

  [[nodiscard]] std::string log() const {
    std::string text = read(nvrtc().log_size, nvrtc().log, "read the log");
    while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
    return text;
  }

  [[nodiscard]] std::string cubin() const {
    return read(nvrtc().cubin_size, nvrtc().cubin, "read the cubin");
  }

 private:
  [[nodiscard]] std::string read(int (*size_of)(void*, std::size_t*), int (*get)(void*, char*),
                                 const char* what) const {
    std::size_t size = 0;
    check_nvrtc(size_of(program_, &size), what);
    std::string text(size, '\0');
    check_nvrtc(get(program_, text.data()), what);
    return text;
  }

  void* program_ = nullptr;
};

}  // namespace

std::string nvrtc_version() {
  int major = 0;
  int minor = 0;
  check_nvrtc(nvrtc().version(&major, &minor), "read the version");
  return formatted("{}.{}", major, minor);
}

std::vector<int> nvrtc_architectures() {
  int count = 0;
  check_nvrtc(nvrtc().count_architectures(&count), "count architectures");
  std::vector<int> all(static_cast<std::size_t>(count));
  check_nvrtc(nvrtc().architectures(all.data()), "list architectures");
  std::erase_if(all, [](int one) { return one < kLeastArchitecture; });
  return all;
}

std::string program_of(const Kernel& kernel, Element element) {
  constexpr std::array<std::string_view, 3> kTypes{"Bf16", "Half", "float"};
  return formatted(
      "#include \"ops/cuda/kernels/{}.cu\"\n"
      "using namespace trireme::ops;\n"
      "extern \"C\" __global__ void __launch_bounds__({}) {}(\n"
      "    const __grid_constant__ cuda::{} arguments) {{\n"
      "  using namespace cuda;\n"
      "  cuda::{}<{}>(arguments);\n"
      "}}\n",
      kernel.source, kernel.max_threads, kernel.name, kernel.arguments, kernel.name,
      kTypes[static_cast<std::size_t>(element)]);
}

std::vector<std::string> compile_options(const std::string& architecture) {
  return {"--gpu-architecture=" + architecture, "--std=c++20",
          "--device-as-default-execution-space", "--ptxas-options=-v"};
}

Compiled compile_program(const std::string& program, const std::string& name,
                         const std::string& architecture) {
  Program compilation(program, name);
  const int code = compilation.compile(compile_options(architecture));
  if (code == kInvalidOption)
    fail(ErrorKind::resource, "NVRTC {} cannot compile for {}: {}", nvrtc_version(), architecture,
         compilation.log());
  if (code != 0)
    fail(ErrorKind::internal, "kernel {} does not compile for {}:\n{}", name, architecture,
         compilation.log());
  return {compilation.cubin(), compilation.log()};
}

Compiled compile(const Kernel& kernel, Element element, const std::string& architecture) {
  return compile_program(program_of(kernel, element), std::string(kernel.name), architecture);
}

}  // namespace trireme::ops::cuda
