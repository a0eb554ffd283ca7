#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "ops/attention/bundle.hpp"
#include "ops/attention/fixed_calls.hpp"

namespace trireme::ops {

/// Stores what attention derives from its setup: the plan, the bundles of documents for CPUs, the
/// offsets of the variable-length kernels on the device, and the mask of the plain path. A
/// micro-batch has one memo, which all of its layers use, forward and backward, so that each value is
/// computed and uploaded once.
///
/// The setup and the tensor lengths are the key, so a memo never returns the values of another
/// setup. All functions may be called from several threads.
class AttentionMemo {
 public:
  /// Makes calls() return the calls of `fixed`, which has the boundaries of the micro-batch.
  void fix(std::shared_ptr<FixedCalls> fixed);

  std::shared_ptr<const AttentionPlan> plan(const AttentionSetup& setup, std::int64_t batch,
                                            std::int64_t num_queries, std::int64_t num_keys);

  /// Returns the documents of the plan in bundles of at most kBundleKeys keys.
  std::shared_ptr<const std::vector<DocumentBundle>> bundles(const AttentionSetup& setup,
                                                             std::int64_t batch,
                                                             std::int64_t num_queries,
                                                             std::int64_t num_keys);

  std::shared_ptr<const std::vector<VarlenCall>> calls(const AttentionSetup& setup,
                                                       std::int64_t batch, std::int64_t num_queries,
                                                       std::int64_t num_keys, at::Device device);

  /// Returns the stored mask of these arguments. Calls `make` if there is none.
  at::Tensor mask(const AttentionSetup& setup, std::int64_t batch, std::int64_t num_queries,
                  std::int64_t num_keys, at::Device device,
                  const std::function<at::Tensor()>& make);

 private:
  struct Key {
    AttentionMask mask;
    RowBounds bounds;
    RowPositions query_positions;
    RowPositions key_positions;
    std::int64_t batch;
    std::int64_t num_queries;
    std::int64_t num_keys;
  };

  struct Entry {
    Key key;
    std::shared_ptr<const AttentionPlan> plan;
    std::shared_ptr<const std::vector<DocumentBundle>> bundles;
    at::Device device = at::kCPU;  // where calls and mask are stored
    std::shared_ptr<const std::vector<VarlenCall>> calls;
    at::Tensor mask;
  };

  /// Returns the entry with its plan. Requires mutex_.
  Entry& entry(const AttentionSetup& setup, std::int64_t batch, std::int64_t num_queries,
               std::int64_t num_keys);
  /// Like entry(), but discards values on another device.
  Entry& entry_on(at::Device device, const AttentionSetup& setup, std::int64_t batch,
                  std::int64_t num_queries, std::int64_t num_keys);

  std::mutex mutex_;
  std::shared_ptr<FixedCalls> fixed_;            // null: calls are computed from the plan
  std::vector<std::unique_ptr<Entry>> entries_;  // one per combination of ranks' positions
};

/// Returns plan_attention() of these arguments, from setup.memo if there is one.
std::shared_ptr<const AttentionPlan> planned_attention(const AttentionSetup& setup,
                                                       std::int64_t batch, std::int64_t num_queries,
                                                       std::int64_t num_keys);

/// Returns bundle_documents() of the plan of these arguments, from setup.memo if there is one.
std::shared_ptr<const std::vector<DocumentBundle>> planned_bundles(const AttentionSetup& setup,
                                                                   std::int64_t batch,
                                                                   std::int64_t num_queries,
                                                                   std::int64_t num_keys);

/// Returns varlen_calls() with their tensors on `device`, from setup.memo if there is one.
std::shared_ptr<const std::vector<VarlenCall>> placed_calls(const AttentionSetup& setup,
                                                            std::int64_t batch,
                                                            std::int64_t num_queries,
                                                            std::int64_t num_keys,
                                                            at::Device device);

}  // namespace trireme::ops
