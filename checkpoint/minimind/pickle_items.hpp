#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/minimind/pickle.hpp"
#include "core/dtype.hpp"

namespace trireme {

/// A Python object. One deque owns all objects until the end, because a pickle may contain cycles.
struct PyItem {
  enum class Kind { mark, none, number, other, text, tuple, list, dict, callable, storage, tensor };

  Kind kind = Kind::none;
  std::int64_t number = 0;
  std::string text;            // text, callable ("module.name"), storage (key)
  std::vector<PyItem*> items;  // tuple, list; dict: key, value, key, value
  DType dtype = DType::f32;    // storage
  PickledTensor tensor;
};

/// A storage class of torch and the dtype of its elements.
struct StorageType {
  std::string_view name;
  DType dtype;
};

inline constexpr std::array<StorageType, 9> kStorageTypes{{{"torch.FloatStorage", DType::f32},
                                                           {"torch.HalfStorage", DType::f16},
                                                           {"torch.BFloat16Storage", DType::bf16},
                                                           {"torch.DoubleStorage", DType::f64},
                                                           {"torch.LongStorage", DType::i64},
                                                           {"torch.IntStorage", DType::i32},
                                                           {"torch.ShortStorage", DType::i16},
                                                           {"torch.CharStorage", DType::i8},
                                                           {"torch.ByteStorage", DType::u8}}};
inline constexpr std::string_view kRebuild = "torch._utils._rebuild_tensor_v2";
inline constexpr std::string_view kOrderedDict = "collections.OrderedDict";

/// Returns the dtype of a storage class of torch; nullopt for any other callable.
inline std::optional<DType> storage_dtype(std::string_view callable) {
  for (const StorageType& type : kStorageTypes) {
    if (type.name == callable) return type.dtype;
  }
  return std::nullopt;
}

/// Returns a name for error messages.
inline const char* kind_name(PyItem::Kind kind) {
  constexpr std::array kNames{"a mark", "None",   "a number", "a number",  "a text",  "a tuple",
                              "a list", "a dict", "a class",  "a storage", "a tensor"};
  return kNames[static_cast<std::size_t>(kind)];
}

}  // namespace trireme
