#pragma once
#include <concepts>
#include <cstdint>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

/// Collectives of one number per rank, in host memory. They block until the result is available.
namespace trireme::comm {

template <class T>
concept Scalar =
    std::same_as<T, double> || std::same_as<T, float> || std::same_as<T, std::int64_t> ||
    std::same_as<T, std::int32_t> || std::same_as<T, std::uint64_t>;

template <Scalar T>
constexpr DType dtype_of() {
  if constexpr (std::same_as<T, double>) return DType::f64;
  if constexpr (std::same_as<T, float>) return DType::f32;
  if constexpr (std::same_as<T, std::int64_t>) return DType::i64;
  if constexpr (std::same_as<T, std::int32_t>) return DType::i32;
  if constexpr (std::same_as<T, std::uint64_t>) return DType::u64;
}

/// Returns `op` over the values of all ranks, on every rank.
template <Scalar T>
T all_reduce_value(Communicator& group, T value, ReduceOp op, std::string_view tag) {
  group
      .all_reduce({.input = &value,
                   .output = &value,
                   .count = 1,
                   .dtype = dtype_of<T>(),
                   .op = op,
                   .tag = tag})
      ->wait();
  return value;
}

/// Returns the value of rank `root` on every rank.
template <Scalar T>
T broadcast_value(Communicator& group, T value, int root, std::string_view tag) {
  group.broadcast({.data = &value, .count = 1, .dtype = dtype_of<T>(), .root = root, .tag = tag})
      ->wait();
  return value;
}

/// Returns the values of all ranks in rank order, on every rank.
template <Scalar T>
std::vector<T> all_gather_value(Communicator& group, T value, std::string_view tag) {
  std::vector<T> values(static_cast<std::size_t>(group.size()));
  group
      .all_gather({.input = &value,
                   .output = values.data(),
                   .count = 1,
                   .dtype = dtype_of<T>(),
                   .tag = tag})
      ->wait();
  return values;
}

}  // namespace trireme::comm
