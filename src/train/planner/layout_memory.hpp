#pragma once
#include <cstdint>

#include "train/cost/update_facts.hpp"
#include "train/planner/cluster.hpp"

namespace trireme::planner {

/// The peak memory of one rank in bytes by purpose.
struct LayoutMemory {
  double weights = 0;      // weights for computation
  double main = 0;         // master weights if they are a separate copy
  double grads = 0;        // master gradients
  double optimizer = 0;    // optimizer state
  double activations = 0;  // saved activations, and temporary memory of one block
  double logits = 0;       // logits of one chunk of the loss
  double buffers = 0;      // gathered units, buckets, driver and communicators

  [[nodiscard]] double total() const {
    return weights + main + grads + optimizer + activations + logits + buffers;
  }

  /// Calls visit(name, value) for every field.
  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("weights", self.weights);
    visit("main", self.main);
    visit("grads", self.grads);
    visit("optimizer", self.optimizer);
    visit("activations", self.activations);
    visit("logits", self.logits);
    visit("buffers", self.buffers);
  }
};

/// The number of rows with logits in memory at once, and the bytes per logit including exponentials
/// and gradients. The defaults are those of Trireme: on a GPU 16, 32, 32 and 16 bits, on a CPU in
/// place.
struct LogitChunk {
  std::int64_t rows = 1024;
  double bytes_each = 0;  // 0: as in Trireme
};

/// Returns the memory of the largest rank of stage `pp_rank`: memory_formula of
/// train/cost.
LayoutMemory layout_memory(const train::UpdateFacts& facts, const DeviceKind& device, int pp_rank,
                           const LogitChunk& logits = {});

/// Returns the memory of the pipeline rank that needs the most.
LayoutMemory max_rank_memory(const train::UpdateFacts& facts, const DeviceKind& device);

/// Returns a lower bound in little time: weights, gradients and optimizer state of the mean rank.
double min_memory(const train::UpdateFacts& facts);

/// Returns the memory that a rank may use of its device, or of its share of a node; the rest is for
/// fragmentation of the allocator.
double usable_bytes(const Cluster& cluster);

}  // namespace trireme::planner
