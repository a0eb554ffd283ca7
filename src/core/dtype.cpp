#include "core/dtype.hpp"

#include <array>

namespace trireme {
namespace {

struct Row {
  std::string_view name;
  std::size_t size;
};

constexpr std::array<Row, 12> kRows{{{"f64", 8},
                                     {"f32", 4},
                                     {"bf16", 2},
                                     {"f16", 2},
                                     {"i64", 8},
                                     {"i32", 4},
                                     {"i16", 2},
                                     {"i8", 1},
                                     {"u64", 8},
                                     {"u32", 4},
                                     {"u16", 2},
                                     {"u8", 1}}};

}  // namespace

std::size_t size_of(DType dtype) noexcept {
  return kRows[static_cast<std::size_t>(dtype)].size;
}

std::string_view dtype_name(DType dtype) noexcept {
  return kRows[static_cast<std::size_t>(dtype)].name;
}

std::optional<DType> dtype_from_name(std::string_view name) noexcept {
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    if (kRows[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace trireme
