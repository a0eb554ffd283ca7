#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "core/dtype.hpp"

/// Arguments of the collectives, with one struct for each data layout. A collective reads its
/// struct only during the call.
///
/// Counts are in elements. Members without a default must be set; the compiler warns otherwise.
/// `tag` is the caller's name for the call in errors and records: "grads bucket 3".
namespace trireme::comm {

enum class ReduceOp { sum, max, min };

/// A device stream (cudaStream_t) as an opaque pointer; null on the CPU backends.
struct Stream {
  void* handle = nullptr;
};

/// For all_reduce, input and output have `count` elements. For reduce_scatter, the input has size()
/// parts of `count` elements and the output has one.
struct Reduction {
  const void* input;
  void* output;
  std::uint64_t count;
  DType dtype;
  ReduceOp op;
  Stream stream = {};
  std::string_view tag = {};

  [[nodiscard]] std::uint64_t bytes() const { return count * size_of(dtype); }
};

/// The input has `count` elements, the output size() parts of `count` in rank order.
struct AllGather {
  const void* input;
  void* output;
  std::uint64_t count;
  DType dtype;
  Stream stream = {};
  std::string_view tag = {};

  [[nodiscard]] std::uint64_t bytes() const { return count * size_of(dtype); }
};

/// `data` has `count` elements, read on `root` and written on other ranks.
struct Broadcast {
  void* data;
  std::uint64_t count;
  DType dtype;
  int root;
  Stream stream = {};
  std::string_view tag = {};

  [[nodiscard]] std::uint64_t bytes() const { return count * size_of(dtype); }
};

/// Part p of the input (send_counts[p] elements, parts are contiguous) goes to rank p.
struct AllToAll {
  const void* input;
  std::span<const std::uint64_t> send_counts;
  void* output;
  std::span<const std::uint64_t> receive_counts;
  DType dtype;
  Stream stream = {};
  std::string_view tag = {};
};

/// One message of an exchange. Messages between two ranks match in listed order.
struct Message {
  int peer = 0;
  void* data = nullptr;
  std::uint64_t bytes = 0;
};

/// Point-to-point messages that start together, so that no order of sends and receives can
/// deadlock.
struct Exchange {
  std::span<const Message> sends = {};
  std::span<const Message> receives = {};
  Stream stream = {};
  std::string_view tag = {};
};

struct Barrier {
  std::string_view tag = {};
};

}  // namespace trireme::comm
