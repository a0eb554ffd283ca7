#include "ops/attention/memo.hpp"

#include <algorithm>
#include <utility>

namespace trireme::ops {
namespace {

std::shared_ptr<const std::vector<VarlenCall>> make_calls(const AttentionPlan& plan,
                                                          std::int64_t batch,
                                                          std::int64_t num_queries,
                                                          std::int64_t num_keys,
                                                          at::Device device) {
  auto calls =
      std::make_shared<std::vector<VarlenCall>>(varlen_calls(plan, batch, num_queries, num_keys));
  for (VarlenCall& call : *calls)
    copy_to_device(call, batch * num_queries, batch * num_keys, device);
  return calls;
}

std::shared_ptr<const std::vector<DocumentBundle>> make_bundles(const AttentionPlan& plan) {
  return std::make_shared<const std::vector<DocumentBundle>>(bundle_documents(plan, kBundleKeys));
}

}  // namespace

void AttentionMemo::fix(std::shared_ptr<FixedCalls> fixed) {
  const std::scoped_lock lock(mutex_);
  fixed_ = std::move(fixed);
}

AttentionMemo::Entry& AttentionMemo::entry(const AttentionSetup& setup, std::int64_t batch,
                                           std::int64_t num_queries, std::int64_t num_keys) {
  const auto found = std::ranges::find_if(entries_, [&](const std::unique_ptr<Entry>& each) {
    const Key& key = each->key;
    return key.mask == setup.mask && key.batch == batch && key.num_queries == num_queries &&
           key.num_keys == num_keys && key.bounds == setup.bounds &&
           key.query_positions == setup.query_positions && key.key_positions == setup.key_positions;
  });
  if (found != entries_.end()) return **found;
  auto made = std::make_unique<Entry>();
  made->key = {setup.mask,  setup.bounds, setup.query_positions, setup.key_positions, batch,
               num_queries, num_keys};
  made->plan =
      std::make_shared<const AttentionPlan>(plan_attention(setup, batch, num_queries, num_keys));
  return *entries_.emplace_back(std::move(made));
}

AttentionMemo::Entry& AttentionMemo::entry_on(at::Device device, const AttentionSetup& setup,
                                              std::int64_t batch, std::int64_t num_queries,
                                              std::int64_t num_keys) {
  Entry& result = entry(setup, batch, num_queries, num_keys);
  if (result.device == device) return result;
  result.device = device;
  result.calls.reset();
  result.mask.reset();
  return result;
}

std::shared_ptr<const AttentionPlan> AttentionMemo::plan(const AttentionSetup& setup,
                                                         std::int64_t batch,
                                                         std::int64_t num_queries,
                                                         std::int64_t num_keys) {
  const std::scoped_lock lock(mutex_);
  return entry(setup, batch, num_queries, num_keys).plan;
}

std::shared_ptr<const std::vector<DocumentBundle>> AttentionMemo::bundles(
    const AttentionSetup& setup, std::int64_t batch, std::int64_t num_queries,
    std::int64_t num_keys) {
  const std::scoped_lock lock(mutex_);
  Entry& found = entry(setup, batch, num_queries, num_keys);
  if (!found.bundles) found.bundles = make_bundles(*found.plan);
  return found.bundles;
}

std::shared_ptr<const std::vector<VarlenCall>> AttentionMemo::calls(const AttentionSetup& setup,
                                                                    std::int64_t batch,
                                                                    std::int64_t num_queries,
                                                                    std::int64_t num_keys,
                                                                    at::Device device) {
  const std::scoped_lock lock(mutex_);
  if (fixed_) return fixed_->calls(setup.mask, batch, num_queries, num_keys);
  Entry& found = entry_on(device, setup, batch, num_queries, num_keys);
  if (!found.calls) found.calls = make_calls(*found.plan, batch, num_queries, num_keys, device);
  return found.calls;
}

at::Tensor AttentionMemo::mask(const AttentionSetup& setup, std::int64_t batch,
                               std::int64_t num_queries, std::int64_t num_keys, at::Device device,
                               const std::function<at::Tensor()>& make) {
  const std::scoped_lock lock(mutex_);
  Entry& found = entry_on(device, setup, batch, num_queries, num_keys);
  if (!found.mask.defined()) found.mask = make();
  return found.mask;
}

std::shared_ptr<AttentionMemo> make_attention_memo() {
  return std::make_shared<AttentionMemo>();
}

std::shared_ptr<const AttentionPlan> planned_attention(const AttentionSetup& setup,
                                                       std::int64_t batch, std::int64_t num_queries,
                                                       std::int64_t num_keys) {
  if (setup.memo) return setup.memo->plan(setup, batch, num_queries, num_keys);
  return std::make_shared<const AttentionPlan>(plan_attention(setup, batch, num_queries, num_keys));
}

std::shared_ptr<const std::vector<DocumentBundle>> planned_bundles(const AttentionSetup& setup,
                                                                   std::int64_t batch,
                                                                   std::int64_t num_queries,
                                                                   std::int64_t num_keys) {
  if (setup.memo) return setup.memo->bundles(setup, batch, num_queries, num_keys);
  return make_bundles(plan_attention(setup, batch, num_queries, num_keys));
}

std::shared_ptr<const std::vector<VarlenCall>> placed_calls(const AttentionSetup& setup,
                                                            std::int64_t batch,
                                                            std::int64_t num_queries,
                                                            std::int64_t num_keys,
                                                            at::Device device) {
  if (setup.memo) return setup.memo->calls(setup, batch, num_queries, num_keys, device);
  return make_calls(plan_attention(setup, batch, num_queries, num_keys), batch, num_queries,
                    num_keys, device);
}

}  // namespace trireme::ops
