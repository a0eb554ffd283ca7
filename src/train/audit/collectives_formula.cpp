#include "train/audit/collectives_formula.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>

#include "comm/p2p/volume.hpp"
#include "core/exact_sum.hpp"
#include "model/block.hpp"
#include "parallel/tensor/tensor_group.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kLossRows = 1024;  // of the head's chunks

std::uint64_t u64(std::int64_t value) {
  return static_cast<std::uint64_t>(value);
}

/// A rank's collectives in one group.
class Group {
 public:
  Group(std::string name, int size, int rank, std::vector<CollectiveRow>& rows)
      : name_(std::move(name)), size_(size), rank_(rank), rows_(rows) {}

  /// `times` calls of `payload` bytes each (TrafficRow's).
  void add(const char* operation, const char* purpose, std::int64_t times,
           std::int64_t payload) const {
    if (size_ == 1 || times == 0) return;
    add_sent(operation, purpose, times, payload, sent_bytes(operation, size_, rank_, u64(payload)));
  }

  /// All-to-all of `part_bytes`, or a message to a neighbour: what is sent is known.
  void add_sent(const char* operation, const char* purpose, std::int64_t times,
                std::int64_t payload, std::uint64_t sent) const {
    if (size_ == 1 || times == 0) return;
    const auto same = std::find_if(rows_.begin(), rows_.end(), [&](const CollectiveRow& row) {
      return row.group == name_ && row.operation == operation && row.purpose == purpose;
    });
    CollectiveRow& row = same != rows_.end()
                             ? *same
                             : rows_.emplace_back(CollectiveRow{name_, size_, operation, purpose});
    row.count += u64(times);
    row.payload_bytes += u64(times * payload);
    row.moved_bytes = row.moved_bytes.value_or(0) + u64(times) * sent;
  }

  void add_all_to_all(const char* purpose, std::int64_t times,
                      const std::vector<std::uint64_t>& parts) const {
    const auto payload = std::accumulate(parts.begin(), parts.end(), std::uint64_t{0});
    add_sent("all_to_all", purpose, times, static_cast<std::int64_t>(payload),
             sent_bytes(rank_, parts));
  }

  [[nodiscard]] int size() const { return size_; }

 private:
  std::string name_;
  int size_;
  int rank_;
  std::vector<CollectiveRow>& rows_;
};

/// The formulas of one rank, by the axis that they belong to.
class Formula {
 public:
  Formula(const UpdateFacts& facts, int rank)
      : facts_(facts),
        coords_(coords_of(facts, rank)),
        rank_(rank),
        elements_(unit_elements(facts, coords_.tp)),
        trained_(trained_elements(facts, elements_)),
        compute_(static_cast<std::int64_t>(c10::elementSize(facts.dtypes.compute))),
        main_(static_cast<std::int64_t>(c10::elementSize(facts.dtypes.main))),
        wide_(std::max<std::int64_t>(compute_, 4)) {}

  std::vector<CollectiveRow> rows() {
    norm();
    gradients();
    averages();
    if (!facts_.tokens_vary || facts_.parallel.zero < 3) weights();
    tensor();
    if (!facts_.tokens_vary) context();
    std::sort(rows_.begin(), rows_.end(), [](const CollectiveRow& a, const CollectiveRow& b) {
      return std::tie(a.group, a.operation, a.purpose) < std::tie(b.group, b.operation, b.purpose);
    });
    return std::move(rows_);
  }

 private:
  [[nodiscard]] Group data_group() {
    const auto size = static_cast<int>(facts_.data_ranks());
    return {"data", size, at_data(), rows_};
  }

  [[nodiscard]] Group shard_group() {
    const auto shards = static_cast<int>(facts_.shards());
    return {"shard", shards, at_data() % shards, rows_};
  }

  [[nodiscard]] Group replica_group() {
    const auto shards = static_cast<int>(facts_.shards());
    return {"replica", static_cast<int>(facts_.replicas()), at_data() / shards, rows_};
  }

  [[nodiscard]] int at_data() const {
    return coords_.cp + static_cast<int>(facts_.parallel.cp) * coords_.dp;
  }

  /// Words of an exact sum and a count of what is not finite.
  void norm() {
    constexpr std::int64_t kBytes = std::int64_t{8} * (ExactSum::kWords + 1);
    if (!facts_.trains_alone()) {
      Group("world", facts_.ranks, rank_, rows_).add("all_reduce", "norm", 1, kBytes);
      return;
    }
    const Group tp{"tp", static_cast<int>(facts_.parallel.tp), coords_.tp, rows_};
    tp.add("all_reduce", "norm", 1, kBytes);
    data_group().add("all_reduce", "norm of data ranks", 1, kBytes);
  }

  /// Backward passes after which units of gradients leave.
  [[nodiscard]] std::int64_t passes() const {
    return facts_.grads_leave_each_pass() ? facts_.micro_steps : 1;
  }

  void gradients() {
    const std::int64_t parts = facts_.shards();
    if (facts_.parallel.reproducible) {
      const Group data = data_group();
      for (const std::int64_t unit : trained_) {
        if (unit == 0) continue;  // all its parameters lie with the small ones
        const std::int64_t share = unit * main_ / data.size();
        data.add_all_to_all(
            "grads in order", passes(),
            std::vector<std::uint64_t>(static_cast<std::size_t>(data.size()), u64(share)));
        replica_group().add("all_gather", "grads of copies", 1, share);
      }
      return;
    }
    if (parts == 1) {
      buckets();
      return;
    }
    for (const std::int64_t unit : trained_) {
      if (unit == 0) continue;
      shard_group().add("reduce_scatter", "grads", passes(), unit * main_);
      replica_group().add("all_reduce", "grads of copies", 1, unit / parts * main_);
    }
  }

  void buckets() {
    const std::int64_t all =
        std::accumulate(trained_.begin(), trained_.end(), std::int64_t{0}) * main_;
    const std::int64_t bytes = bucket_bytes(facts_.parallel, facts_.data_ranks());
    const std::int64_t grain = 64 * std::max(facts_.node_replicas, 1);
    if (bytes == 0) {
      bucket(all);
      return;
    }
    std::int64_t left = all;
    for (std::int64_t size = std::min<std::int64_t>(bytes, 1 << 20); left > 0; size = bytes) {
      const std::int64_t whole = std::max(size / main_ / grain * grain, grain) * main_;
      bucket(std::min(left, whole));
      left -= std::min(left, whole);
    }
  }

  void bucket(std::int64_t bytes) {
    const int here = facts_.node_replicas;
    if (here == 0) {
      const Group cp{"cp", static_cast<int>(facts_.parallel.cp), coords_.cp, rows_};
      const Group group = facts_.trains_alone() ? cp : replica_group();
      group.add("all_reduce", "grads bucket", 1, bytes);
      return;
    }
    const Group node{"node", here, at_data() % here, rows_};
    const int nodes = static_cast<int>(facts_.replicas()) / here;
    const Group across{"across", nodes, at_data() / here, rows_};
    node.add("reduce_scatter", "grads in node", 1, bytes);
    across.add("all_reduce", "grads across nodes", 1, bytes / here);
    node.add("all_gather", "grads in node", 1, bytes / here);
  }

  /// Of weights, unit by unit, and of every tensor of optimizer state.
  void averages() {
    if (!facts_.averages) return;
    const auto size = static_cast<int>(facts_.data_ranks() / facts_.parallel.cp);
    const Group dp{"dp", size, coords_.dp, rows_};
    const std::int64_t all = std::accumulate(trained_.begin(), trained_.end(), std::int64_t{0});
    for (const std::int64_t unit : trained_) dp.add("all_reduce", "average", 1, unit * main_);
    dp.add("all_reduce", "average", facts_.slots, all * main_);
  }

  void weights() {
    if (facts_.shards() == 1) return;
    const GatherPlan plan = plan_gathers(facts_, elements_);
    const std::size_t first_trained = elements_.size() - trained_.size();
    for (std::size_t unit = 0; unit < elements_.size(); ++unit) {
      if (elements_[unit] == 0) continue;
      const std::int64_t after_update = unit < first_trained ? 0 : 1;
      const std::int64_t times = facts_.parallel.zero == 3 ? plan.gathers[unit] : after_update;
      shard_group().add("all_gather", "weights", times,
                        elements_[unit] / facts_.shards() * compute_);
    }
  }

  /// Times that a block's forward runs in an update, when it runs again for backward included.
  [[nodiscard]] std::int64_t block_forwards() const {
    const std::int64_t runs = facts_.parallel.recompute == "full" ? 2 : 1;
    return facts_.micro_steps * facts_.model.num_layers * runs;
  }

  [[nodiscard]] std::int64_t block_backwards() const {
    return facts_.micro_steps * facts_.model.num_layers;
  }

  void tensor() {
    const ParallelConfig& parallel = facts_.parallel;
    const auto size = static_cast<int>(parallel.tp);
    const Group tp{"tp", size, coords_.tp, rows_};
    if (size == 1) return;
    if (!facts_.tokens_vary) activations(tp);
    shared_gradients(tp);
  }

  /// Over tp, of what the tokens of a micro-batch are in blocks, at their ends and in the loss.
  void activations(const Group& tp) {
    const ParallelConfig& parallel = facts_.parallel;
    const int size = tp.size();
    const std::int64_t tokens = facts_.rows * facts_.length / parallel.cp;
    const std::int64_t token = facts_.model.hidden_size * compute_;
    // Of blocks twice, in pieces; once the embedding's sum, once what enters or leaves the head.
    const std::int64_t in_blocks = 2 * (block_forwards() + block_backwards());
    const std::int64_t outside = 2 * facts_.micro_steps;
    if (!parallel.sequence_parallel) {
      tp.add("all_reduce", "activations", outside, tokens * token);
      for (const IndexRange& piece : token_pieces(tokens, parallel.tp_chunks))
        tp.add("all_reduce", "activations", in_blocks, piece.count() * token);
    } else {
      // Selective: what entered a matrix is gathered again for its backward.
      const std::int64_t again =
          parallel.recompute == "selective" ? inputs_wanted() * block_backwards() : 0;
      // The embedding's backward, where it is trained.
      const std::int64_t below = facts_.lora.on() ? facts_.micro_steps : 0;
      tp.add("reduce_scatter", "activations", outside, tokens * token);
      tp.add("all_gather", "activations", outside + again - below, tokens * token / size);
      const std::int64_t own = facts_.length / parallel.cp / size;  // of a row
      for (const IndexRange& piece : token_pieces(own, parallel.tp_chunks)) {
        const std::int64_t bytes = facts_.rows * piece.count() * token;
        tp.add("reduce_scatter", "activations", in_blocks, bytes * size);
        tp.add("all_gather", "activations", in_blocks, bytes);
      }
    }
    for (std::int64_t first = 0; first < tokens; first += kLossRows) {
      const std::int64_t rows = std::min(kLossRows, tokens - first);
      tp.add("all_reduce", "loss maxima", facts_.micro_steps, rows * wide_);
      tp.add("all_reduce", "loss sums", facts_.micro_steps, 2 * rows * wide_);
    }
  }

  /// Of the two inputs that enter a block's matrices, those that their backward reads.
  [[nodiscard]] std::int64_t inputs_wanted() const {
    if (!facts_.lora.on()) return 2;
    const auto adapters = adapter_elements(facts_, coords_.tp);
    return (adapters[0].terms > 0 ? 1 : 0) + (adapters[2].terms > 0 ? 1 : 0);
  }

  /// Of parameters that ranks of tp hold as copies, each with a part of the gradient.
  void shared_gradients(const Group& tp) const {
    const ModelConfig& m = facts_.model;
    if (facts_.lora.on()) {
      std::int64_t shared = 0;
      for (const AdapterElements& group : adapter_elements(facts_, coords_.tp))
        shared += group.shared;
      tp.add("all_reduce", "shared grads", passes() * m.num_layers, shared * main_);
      return;
    }
    const bool sequence = facts_.parallel.sequence_parallel;
    const DimSplit keys{.readers = m.num_heads};
    std::int64_t held = 0;
    for (int rank = 0; rank < tp.size(); ++rank)
      held += split_range(m.num_kv_heads, keys, tp.size(), rank).count();
    const std::int64_t persist = facts_.persist();
    std::int64_t small = 0;  // of all layers, in the unit of small parameters
    std::int64_t of_block = 0;
    std::int64_t of_head = 0;
    const auto add = [&](std::int64_t& unit, std::int64_t all, std::int64_t shared,
                         std::int64_t units) {
      if (all < persist) {
        small += shared * units;
      } else {
        unit += shared;
      }
    };
    const std::int64_t layers = m.num_layers;
    if (sequence) {
      add(of_block, m.hidden_size, 2 * m.hidden_size, layers);
      add(of_head, m.hidden_size, m.hidden_size, 1);
    }
    if (m.qk_norm) add(of_block, m.head_dim, 2 * m.head_dim, layers);
    if (held > m.num_kv_heads) {
      const std::int64_t row = m.head_dim * m.hidden_size;
      add(of_block, (m.num_heads + 2 * m.num_kv_heads) * row, 2 * m.num_kv_heads * row, layers);
    }
    if (of_block > 0) tp.add("all_reduce", "shared grads", passes() * layers, of_block * main_);
    if (of_head > 0) tp.add("all_reduce", "shared grads", passes(), of_head * main_);
    if (small > 0) tp.add("all_reduce", "shared grads", passes(), small * main_);
  }

  void context() {
    const ParallelConfig& parallel = facts_.parallel;
    const auto size = static_cast<int>(parallel.cp);
    if (size == 1) return;
    const Group cp{"cp", size, coords_.cp, rows_};
    // Full and selective run attention again for backward.
    const std::int64_t runs = parallel.recompute == "none" ? 1 : 2;
    const std::int64_t forwards = block_backwards() * runs;
    if (parallel.cp_form == "ulysses") {
      ulysses(cp, forwards);
      return;
    }
    const std::int64_t keys =  // and values, of this rank's tokens
        2 * facts_.rows * (facts_.length / size) * attention_heads().key * facts_.model.head_dim;
    if (parallel.cp_form == "all_gather") {
      cp.add("all_gather", "context keys", forwards + block_backwards(), keys * compute_);
      cp.add("reduce_scatter", "context key gradients", block_backwards(), size * keys * wide_);
      return;
    }
    const std::int64_t transfers = size - 1;
    cp.add_sent("exchange", "context keys", transfers * (forwards + block_backwards()),
                keys * compute_, u64(keys * compute_));
    cp.add_sent("exchange", "context key gradients", transfers * block_backwards(), keys * wide_,
                u64(keys * wide_));
  }

  struct HeadCounts {
    std::int64_t query;
    std::int64_t key;
  };

  /// Heads that attention of this rank of tp works on: a key head for each query head where unequal
  /// numbers of them read one.
  [[nodiscard]] HeadCounts attention_heads() const {
    const HeadShare share =
        head_share(facts_.model, static_cast<int>(facts_.parallel.tp), coords_.tp);
    return {share.query.count(),
            share.key_of_query.empty() ? share.key.count() : share.query.count()};
  }

  void ulysses(const Group& cp, std::int64_t forwards) const {
    const HeadCounts heads = attention_heads();
    const std::int64_t here = facts_.rows * (facts_.length / cp.size()) * facts_.model.head_dim;
    const auto deal = [&](const DimSplit& split, std::int64_t count, std::int64_t width) {
      std::vector<std::uint64_t> parts;
      for (int rank = 0; rank < cp.size(); ++rank)
        parts.push_back(u64(split_range(count, split, cp.size(), rank).count() * here * width));
      return parts;
    };
    // Back: this rank's heads, each rank's places.
    const auto back = [&](const DimSplit& split, std::int64_t count, std::int64_t width) {
      const std::int64_t own = split_range(count, split, cp.size(), coords_.cp).count();
      return std::vector<std::uint64_t>(static_cast<std::size_t>(cp.size()),
                                        u64(own * here * width));
    };
    const DimSplit query;
    const DimSplit key{.readers = heads.query};
    const std::int64_t backwards = block_backwards();
    cp.add_all_to_all("context queries", forwards, deal(query, heads.query, compute_));
    cp.add_all_to_all("context keys", forwards, deal(key, heads.key, compute_));
    cp.add_all_to_all("context values", forwards, deal(key, heads.key, compute_));
    cp.add_all_to_all("context output", forwards, back(query, heads.query, compute_));
    cp.add_all_to_all("context output gradients", backwards, deal(query, heads.query, compute_));
    cp.add_all_to_all("context query gradients", backwards, back(query, heads.query, compute_));
    cp.add_all_to_all("context key gradients", backwards, back(key, heads.key, wide_));
    cp.add_all_to_all("context value gradients", backwards, back(key, heads.key, wide_));
  }

  const UpdateFacts& facts_;
  RankCoords coords_;
  int rank_;
  std::vector<std::int64_t> elements_;
  std::vector<std::int64_t> trained_;
  std::int64_t compute_;  // bytes of an element
  std::int64_t main_;
  std::int64_t wide_;  // of sums: fp32, or fp64
  std::vector<CollectiveRow> rows_;
};

}  // namespace

std::vector<CollectiveRow> collectives_formula(const UpdateFacts& facts, int rank) {
  return Formula(facts, rank).rows();
}

}  // namespace trireme
