#pragma once
#include <memory>
#include <utility>
#include <vector>

#include "ops/attention/varlen.hpp"

namespace trireme::ops {

/// Returns the number of documents of `batch` rows.
std::int64_t num_documents(const RowBounds& bounds, std::int64_t batch);

/// Returns the number of tokens of the longest document, of rows of `length` tokens.
std::int64_t longest_document(const RowBounds& bounds, std::int64_t length);

/// The sizes of fixed calls.
struct FixedShape {
  std::int64_t batch = 0;      // rows
  std::int64_t length = 0;     // tokens of a row
  std::int64_t documents = 0;  // most documents of all rows
  std::int64_t longest = 0;    // most tokens of a document; the kernels read it from the host
};

/// The calls of the variable-length kernels for rows of one shape, in tensors that keep their
/// addresses and sizes. Work that is captured once (a CUDA graph) can so be launched with the
/// document boundaries of other batches.
///
/// The offsets have room for shape.documents documents. All sequences after the last document are
/// empty, and the longest sequence is stated as shape.longest tokens. Only for causal masks and whole
/// rows: then one call takes all tokens in order. With a window, a document that is shorter than the
/// window is in the same call, because the window hides no key of the document. Not for several
/// threads.
class FixedCalls {
 public:
  FixedCalls(const FixedShape& shape, at::Device device);

  /// Sets the document boundaries, in the order of the current stream and without waiting. The rows
  /// must not have more or longer documents than the shape. Throws Error(internal) if they have.
  void set(const RowBounds& bounds);

  /// Returns the call of a mask, for queries and keys [batch, length]. Throws Error(internal) for
  /// another shape or a mask that is not causal.
  [[nodiscard]] std::shared_ptr<const std::vector<VarlenCall>> calls(const AttentionMask& mask,
                                                                     std::int64_t batch,
                                                                     std::int64_t num_queries,
                                                                     std::int64_t num_keys);

 private:
  FixedShape shape_;
  std::vector<std::int32_t> offsets_;  // [documents + 1]
  at::Tensor starts_;                  // offsets_ on the device, int32
  std::vector<std::pair<AttentionMask, std::shared_ptr<std::vector<VarlenCall>>>> calls_;
};

}  // namespace trireme::ops
