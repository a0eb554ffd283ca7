#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"
#include "core/dtype.hpp"

namespace trireme::testing {

using Bytes = std::vector<std::byte>;

inline constexpr std::array kAllTypes{DType::f64, DType::f32, DType::bf16, DType::f16,
                                      DType::i64, DType::i32, DType::i16,  DType::i8,
                                      DType::u64, DType::u32, DType::u16,  DType::u8};

inline comm::Reduction f32_sum(const void* input, void* output, std::uint64_t count,
                               std::string_view tag = "") {
  return {.input = input,
          .output = output,
          .count = count,
          .dtype = DType::f32,
          .op = comm::ReduceOp::sum,
          .tag = tag};
}

/// Types that every backend can reduce: NCCL has no 16-bit integers.
inline bool reduces(const comm::Communicator& comm, DType dtype) {
  return std::string_view(comm.backend()) != "nccl" || (dtype != DType::i16 && dtype != DType::u16);
}

inline void put(Bytes& buffer, std::uint64_t index, DType dtype, double value) {
  const auto store = [&](auto typed) {
    std::memcpy(buffer.data() + index * sizeof typed, &typed, sizeof typed);
  };
  switch (dtype) {
    case DType::f64:
      return store(value);
    case DType::f32:
      return store(static_cast<float>(value));
    case DType::bf16:
      return store(to_bf16_bits(static_cast<float>(value)));
    case DType::f16:
      return store(to_f16_bits(static_cast<float>(value)));
    case DType::i64:
      return store(static_cast<std::int64_t>(value));
    case DType::i32:
      return store(static_cast<std::int32_t>(value));
    case DType::i16:
      return store(static_cast<std::int16_t>(value));
    case DType::i8:
      return store(static_cast<std::int8_t>(value));
    case DType::u64:
      return store(static_cast<std::uint64_t>(value));
    case DType::u32:
      return store(static_cast<std::uint32_t>(value));
    case DType::u16:
      return store(static_cast<std::uint16_t>(value));
    case DType::u8:
      return store(static_cast<std::uint8_t>(value));
  }
}

inline double get(const Bytes& buffer, std::uint64_t index, DType dtype) {
  const auto load = [&](auto typed) {
    std::memcpy(&typed, buffer.data() + index * sizeof typed, sizeof typed);
    return typed;
  };
  switch (dtype) {
    case DType::f64:
      return load(double{});
    case DType::f32:
      return static_cast<double>(load(float{}));
    case DType::bf16:
      return static_cast<double>(from_bf16_bits(load(std::uint16_t{})));
    case DType::f16:
      return static_cast<double>(from_f16_bits(load(std::uint16_t{})));
    case DType::i64:
      return static_cast<double>(load(std::int64_t{}));
    case DType::i32:
      return static_cast<double>(load(std::int32_t{}));
    case DType::i16:
      return static_cast<double>(load(std::int16_t{}));
    case DType::i8:
      return static_cast<double>(load(std::int8_t{}));
    case DType::u64:
      return static_cast<double>(load(std::uint64_t{}));
    case DType::u32:
      return static_cast<double>(load(std::uint32_t{}));
    case DType::u16:
      return static_cast<double>(load(std::uint16_t{}));
    case DType::u8:
      return static_cast<double>(load(std::uint8_t{}));
  }
  return 0;
}

/// Returns small integers: every sum over a few ranks is exact in every type, so any order gives
/// the same bits.
inline double whole_value(int rank, std::uint64_t index) {
  return static_cast<double>((static_cast<std::uint64_t>(rank) * 7 + index * 3 + index / 11) % 10);
}

inline Bytes whole_values(int rank, std::uint64_t count, DType dtype) {
  Bytes buffer(count * size_of(dtype));
  for (std::uint64_t i = 0; i < count; ++i) put(buffer, i, dtype, whole_value(rank, i));
  return buffer;
}

/// Returns floats with a sum that depends on the order of additions.
inline std::vector<float> awkward_values(int rank, std::uint64_t count, unsigned seed = 1) {
  std::mt19937 random(seed * 1000U + static_cast<unsigned>(rank));
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (auto& value : values) value = normal(random) * ((random() % 3U) == 0 ? 1e4F : 1.0F);
  return values;
}

inline double combine(comm::ReduceOp op, double a, double b) {
  if (op == comm::ReduceOp::sum) return a + b;
  if (op == comm::ReduceOp::max) return a > b ? a : b;
  return a < b ? a : b;
}

/// Returns the reduction of whole_value over ranks [0, size).
inline double reduced_value(int size, std::uint64_t index, comm::ReduceOp op) {
  double value = whole_value(0, index);
  for (int r = 1; r < size; ++r) value = combine(op, value, whole_value(r, index));
  return value;
}

}  // namespace trireme::testing
