#pragma once
#include <cstdint>
#include <span>
#include <string_view>

#include "core/dtype.hpp"

/// What a collective is asked for: one struct a shape of data, read during the call alone.
///
/// Counts are of elements. Members without a default must be given: the compiler warns of a missing
/// one. `tag` is the caller's word for the call, "grads bucket 3", in errors and records.
namespace trireme {

enum class ReduceOp { sum, max, min };

/// A device stream (cudaStream_t) as an opaque pointer; null on the CPU backends.
struct Stream {
  void* handle = nullptr;
};

/// all_reduce: input and output have `count` elements.
/// reduce_scatter: input has size() parts of `count` elements, output one.
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

/// input: `count` elements; output: size() parts of `count`, in rank order.
struct AllGather {
  const void* input;
  void* output;
  std::uint64_t count;
  DType dtype;
  Stream stream = {};
  std::string_view tag = {};

  [[nodiscard]] std::uint64_t bytes() const { return count * size_of(dtype); }
};

/// data: `count` elements, read on `root` and written elsewhere.
struct Broadcast {
  void* data;
  std::uint64_t count;
  DType dtype;
  int root;
  Stream stream = {};
  std::string_view tag = {};

  [[nodiscard]] std::uint64_t bytes() const { return count * size_of(dtype); }
};

/// Part p of input (send_counts[p] elements, parts back to back) goes to rank p; counts may be zero
/// and differ.
struct AllToAll {
  const void* input;
  std::span<const std::uint64_t> send_counts;
  void* output;
  std::span<const std::uint64_t> receive_counts;
  DType dtype;
  Stream stream = {};
  std::string_view tag = {};
};

/// One message of an exchange. Messages between two ranks match in the order they are listed.
struct Message {
  int peer = 0;
  void* data = nullptr;
  std::uint64_t bytes = 0;
};

/// Point to point: all messages are started together, so that no order among them can deadlock.
struct Exchange {
  std::span<const Message> sends = {};
  std::span<const Message> receives = {};
  Stream stream = {};
  std::string_view tag = {};
};

struct Barrier {
  std::string_view tag = {};
};

}  // namespace trireme
