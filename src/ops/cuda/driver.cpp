#include "ops/cuda/driver.hpp"

#include <map>
#include <mutex>

#include "core/error.hpp"
#include "ops/cuda/shared_library.hpp"

namespace trireme::ops::cuda {
namespace {

constexpr const char* kDriverLibrary = "libcuda.so.1";

// Values of cuda.h, which a machine that builds Trireme may lack.
constexpr int kMajor = 75;              // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
constexpr int kMinor = 76;              // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
constexpr int kSharedOptin = 97;        // CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
constexpr int kFunctionShared = 1;      // CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
constexpr int kFunctionMaxDynamic = 8;  // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES

struct DriverFunctions {
  int (*init)(unsigned) = nullptr;
  int (*error_text)(int, const char**) = nullptr;
  int (*version)(int*) = nullptr;
  int (*device_attribute)(int*, int, int) = nullptr;
  int (*retain_context)(void**, int) = nullptr;
  int (*push_context)(void*) = nullptr;
  int (*pop_context)(void**) = nullptr;
  int (*load_module)(void**, const void*) = nullptr;
  int (*get_function)(void**, void*, const char*) = nullptr;
  int (*get_attribute)(int*, int, void*) = nullptr;
  int (*set_attribute)(void*, int, int) = nullptr;
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*,
                void**, void**) = nullptr;
};

DriverFunctions load_driver() {
  void* const handle = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) fail(ErrorKind::resource, "cannot load the CUDA driver: {}", ::dlerror());
  DriverFunctions library;
  read_symbol(handle, kDriverLibrary, "cuInit", library.init);
  read_symbol(handle, kDriverLibrary, "cuGetErrorString", library.error_text);
  read_symbol(handle, kDriverLibrary, "cuDriverGetVersion", library.version);
  read_symbol(handle, kDriverLibrary, "cuDeviceGetAttribute", library.device_attribute);
  read_symbol(handle, kDriverLibrary, "cuDevicePrimaryCtxRetain", library.retain_context);
  read_symbol(handle, kDriverLibrary, "cuCtxPushCurrent_v2", library.push_context);
  read_symbol(handle, kDriverLibrary, "cuCtxPopCurrent_v2", library.pop_context);
  read_symbol(handle, kDriverLibrary, "cuModuleLoadData", library.load_module);
  read_symbol(handle, kDriverLibrary, "cuModuleGetFunction", library.get_function);
  read_symbol(handle, kDriverLibrary, "cuFuncGetAttribute", library.get_attribute);
  read_symbol(handle, kDriverLibrary, "cuFuncSetAttribute", library.set_attribute);
  read_symbol(handle, kDriverLibrary, "cuLaunchKernel", library.launch);
  const int code = library.init(0);
  if (code != 0) fail(ErrorKind::resource, "cuInit failed with error {}", code);
  return library;
}

const DriverFunctions& driver() {
  static const DriverFunctions library = load_driver();
  return library;
}

void check_driver(int code, const char* what) {
  if (code == 0) return;
  const char* text = nullptr;
  driver().error_text(code, &text);
  int version = 0;
  driver().version(&version);
  fail(ErrorKind::resource, "cannot {}: {} (error {}; the driver supports CUDA {}.{})", what,
       text == nullptr ? "unknown error" : text, code, version / 1000, version % 1000 / 10);
}

int attribute(int device, int which) {
  int value = 0;
  check_driver(driver().device_attribute(&value, which, device), "read an attribute of the device");
  return value;
}

/// Makes the primary context of a device the thread's current context. The destructor restores the
/// previous context.
class CurrentContext {
 public:
  explicit CurrentContext(int device) {
    check_driver(driver().push_context(primary(device)), "select the context of the device");
  }

  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
  CurrentContext(CurrentContext&&) = delete;
  CurrentContext& operator=(CurrentContext&&) = delete;

  ~CurrentContext() {
    void* context = nullptr;
    driver().pop_context(&context);
  }

 private:
  /// The context stays retained until the process exits.
  static void* primary(int device) {
    static std::mutex mutex;
    static std::map<int, void*> contexts;
    const std::lock_guard lock(mutex);
    void*& context = contexts[device];
    if (context == nullptr)
      check_driver(driver().retain_context(&context, device), "retain the context of the device");
    return context;
  }
};

}  // namespace

int device_architecture(int device) {
  return 10 * attribute(device, kMajor) + attribute(device, kMinor);
}

std::int64_t device_shared_bytes(int device) {
  return attribute(device, kSharedOptin);
}

void* load_function(int device, const std::string& cubin, const std::string& name) {
  const CurrentContext current(device);
  void* module = nullptr;
  void* function = nullptr;
  check_driver(driver().load_module(&module, cubin.data()), "load a compiled kernel");
  check_driver(driver().get_function(&function, module, name.c_str()), "find a compiled kernel");
  int shared_bytes = 0;
  check_driver(driver().get_attribute(&shared_bytes, kFunctionShared, function),
               "read an attribute of a kernel");
  check_driver(driver().set_attribute(function, kFunctionMaxDynamic,
                                      attribute(device, kSharedOptin) - shared_bytes),
               "set an attribute of a kernel");
  return function;
}

void launch_function(int device, void* function, const Launch& shape, void* stream,
                     const void* arguments) {
  const CurrentContext current(device);
  void* parameters[] = {const_cast<void*>(arguments)};
  check_driver(driver().launch(
                   function, static_cast<unsigned>(shape.blocks),
                   static_cast<unsigned>(shape.blocks_y), 1, static_cast<unsigned>(shape.threads),
                   1, 1, static_cast<unsigned>(shape.shared_bytes), stream, parameters, nullptr),
               "start a kernel");
}

}  // namespace trireme::ops::cuda
