#pragma once
#include <cstdint>

#include "train/cost/update_facts.hpp"
#include "train/planner/cluster.hpp"

namespace trireme::planner {

/// Bytes of one rank at their most, by what they are for.
struct LayoutMemory {
  double weights = 0;      // to compute with
  double main = 0;         // where they are a copy of their own
  double grads = 0;        // main gradients
  double optimizer = 0;    // its state
  double activations = 0;  // that backward reads, and what one block needs for a while
  double logits = 0;       // of the rows whose loss is computed at once
  double buffers = 0;      // gathered units, buckets, and what driver and communicators hold

  [[nodiscard]] double total() const {
    return weights + main + grads + optimizer + activations + logits + buffers;
  }

  /// visit(name, value) for every field.
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

/// Logits that exist at once, and bytes of each with exponentials and gradients. As in this program:
/// chunks of rows, on a GPU 16, 32, 32 and 16 bits, on a CPU in place.
struct LogitChunk {
  std::int64_t rows = 1024;
  double bytes_each = 0;  // 0: as here
};

/// Returns the memory of the largest rank of stage `pp_rank`: memory_formula and working_memory of
/// train/cost.
LayoutMemory layout_memory(const UpdateFacts& facts, const DeviceKind& device, int pp_rank,
                           const LogitChunk& logits = {});

/// Of the rank of pp that needs most.
LayoutMemory worst_memory(const UpdateFacts& facts, const DeviceKind& device);

/// Weights, gradients and moments alone, of a mean rank: not above what a layout needs, at once.
double least_memory(const UpdateFacts& facts);

/// What a rank may take of its device, or of its part of a node's memory: the rest is for what allocators
/// leave between tensors.
double usable_bytes(const Cluster& cluster);

}  // namespace trireme::planner
