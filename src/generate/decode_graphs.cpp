#include "generate/decode_graphs.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <exception>
#include <mutex>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "device/torch_errors.hpp"
#include "generate/cache/kv_blocks.hpp"
#include "model/transformer.hpp"
#include "ops/upload.hpp"

namespace trireme::generate {
namespace {

constexpr std::int64_t kMostRows = 256;
/// Most tokens of all sequences of a captured step, padding included. Attention of a larger step
/// takes longer than its launches, and its temporary tensors would need much memory.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 17;
constexpr std::size_t kMostGraphs = 64;
constexpr std::int64_t kLeastBlocks = 8;
/// Numbers of a row: token, previous token, position, block and slot; then two for each mask.
constexpr std::int64_t kNumbersPerRow = 5;

/// Rounds up to four values for each power of two, so that padding adds at most a quarter.
std::int64_t rounded_blocks(std::int64_t blocks) {
  if (blocks <= kLeastBlocks) return kLeastBlocks;
  const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(blocks)));
  const std::int64_t step = power / 4;
  return (blocks + step - 1) / step * step;
}

/// Returns the numbers of a step in the order of the members of StaticStep, [numbers]. Rows from
/// rows.tokens.size() on are copies of the first row.
at::Tensor packed(const StepRows& rows, const DecodeShape& shape,
                  std::span<const ops::AttentionMask> masks) {
  const std::int64_t masked = 2 * std::ssize(masks);
  at::Tensor numbers =
      at::zeros({shape.rows * (kNumbersPerRow + masked + shape.blocks)}, at::kLong);
  std::int64_t* to = numbers.mutable_data_ptr<std::int64_t>();
  const auto each_row = [&](auto&& put) {
    for (std::int64_t row = 0; row < shape.rows; ++row)
      put(row < std::ssize(rows.tokens) ? static_cast<std::size_t>(row) : 0);
  };
  each_row([&](std::size_t row) { *to++ = rows.tokens[row]; });
  each_row([&](std::size_t row) { *to++ = rows.previous[row]; });
  each_row([&](std::size_t row) { *to++ = rows.positions[row]; });
  each_row([&](std::size_t row) {
    const ops::PagedSequence& text = rows.texts[row];
    *to++ = text.blocks[static_cast<std::size_t>(text.before / KvBlocks::kTokens)];
  });
  each_row([&](std::size_t row) { *to++ = rows.texts[row].before % KvBlocks::kTokens; });
  for (const ops::AttentionMask& mask : masks) {
    each_row([&](std::size_t row) {
      const ops::KeyInterval seen = mask.positions_seen(rows.texts[row].before);
      *to++ = std::max<std::int64_t>(seen.begin, 0);
      *to++ = seen.end;
    });
  }
  each_row([&](std::size_t row) {
    const ops::PagedSequence& text = rows.texts[row];
    const std::int64_t used = KvBlocks::needed(text.before + 1);
    std::copy_n(text.blocks.begin(), used, to);
    to += shape.blocks;
  });
  return numbers;
}

}  // namespace

std::optional<DecodeShape> decode_shape(const StepRows& rows) {
  const std::int64_t count = std::ssize(rows.tokens);
  if (count == 0 || count > kMostRows || std::ssize(rows.texts) != count ||
      std::ssize(rows.kept) != count)
    return std::nullopt;
  std::int64_t blocks = 0;
  for (std::int64_t row = 0; row < count; ++row) {
    const auto at = static_cast<std::size_t>(row);
    if (rows.kept[at] != row) return std::nullopt;
    blocks = std::max(blocks, KvBlocks::needed(rows.texts[at].before + 1));
  }
  const DecodeShape shape{
      static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(count))),
      rounded_blocks(blocks)};
  if (shape.rows * shape.blocks * KvBlocks::kTokens > kMostTokens) return std::nullopt;
  return shape;
}

std::string reason_against_decode_graphs(const model::Transformer& model, int num_ranks) {
  if (!model.registry().device().is_cuda()) return "the model is not on a GPU";
  if (num_ranks > 1) return "several ranks compute the model, and their collectives use the host";
  if (model.registry().mesh().world().size() > 1)
    return "the weights belong to a run of several ranks, which may gather them for each step";
  if (model.config().moe.num_experts > 0)
    return "the host reads the number of tokens of each expert";
  return "";
}

/// The inputs and the result of a captured step, with fixed addresses.
struct DecodeGraphs::Captured {
  Captured(const DecodeShape& given, const model::Transformer& model) : shape(given) {
    const std::vector<ops::AttentionMask>& masks = model.attention_masks();
    const auto options = at::TensorOptions().dtype(at::kLong).device(model.registry().device());
    numbers =
        at::zeros({shape.rows * (kNumbersPerRow + 2 * std::ssize(masks) + shape.blocks)}, options);
    std::int64_t first = 0;
    const auto next = [&](std::int64_t columns) {
      const at::Tensor part = numbers.narrow(0, first, shape.rows * columns);
      first += shape.rows * columns;
      return part;
    };
    step.tokens = next(1);
    step.previous = next(1);
    step.positions = next(1).unsqueeze(0);
    step.kept = at::arange(shape.rows, options);
    const at::Tensor block_of_row = next(1);
    const at::Tensor slot_of_row = next(1);
    for (const ops::AttentionMask& mask : masks) {
      ops::PagedPlan plan;
      plan.mask = mask;
      plan.num_rows = shape.rows;
      plan.block_of_row = block_of_row;
      plan.slot_of_row = slot_of_row;
      plan.single_rows = step.kept;
      plan.single_seen = next(2).view({shape.rows, 2});
      step.plans.push_back(std::move(plan));
    }
    const at::Tensor tables = next(shape.blocks).view({shape.rows, shape.blocks});
    for (ops::PagedPlan& plan : step.plans) plan.tables = tables;
    hidden = at::empty(
        {shape.rows, model.config().hidden_size},
        at::TensorOptions().dtype(model.registry().dtypes().compute).device(options.device()));
  }

  void set(const StepRows& rows, const model::Transformer& model) const {
    numbers.copy_(ops::upload(packed(rows, shape, model.attention_masks()), numbers.device()));
  }

  DecodeShape shape;
  at::Tensor numbers;  // all numbers below, so that one copy sets them
  model::CachedStep step;
  at::Tensor hidden;  // [rows, D]
  std::optional<device::CapturedWork> work;
};

DecodeGraphs::DecodeGraphs(model::Transformer& model, const model::KvCache& cache)
    : model_(model),
      cache_(cache),
      pool_(std::make_shared<device::CapturePool>(model.registry().device())) {}

DecodeGraphs::~DecodeGraphs() = default;

DecodeGraphs::Captured* DecodeGraphs::find(const DecodeShape& shape) {
  const auto found = std::ranges::find_if(
      captured_, [&](const std::unique_ptr<Captured>& one) { return one->shape == shape; });
  if (found != captured_.end()) {
    captured_.splice(captured_.begin(), captured_, found);
    return captured_.front().get();
  }
  if (captured_.size() == kMostGraphs) captured_.pop_back();
  captured_.push_front(std::make_unique<Captured>(shape, model_));
  return nullptr;
}

at::Tensor DecodeGraphs::compute_rows(const StepRows& rows) {
  const std::optional<DecodeShape> shape = works_ ? decode_shape(rows) : std::nullopt;
  Captured* const captured = shape ? find(*shape) : nullptr;
  if (captured == nullptr) return generate::compute_rows(model_, rows, cache_, nullptr);
  if (!captured->work) return capture(*captured, rows);
  captured->set(rows, model_);
  captured->work->launch();
  ++num_launches_;
  return captured->hidden.narrow(0, 0, std::ssize(rows.tokens));
}

at::Tensor DecodeGraphs::capture(Captured& captured, const StepRows& rows) {
  at::Tensor expected = generate::compute_rows(model_, rows, cache_, nullptr);
  const auto give_up = [&](std::string_view why) {
    works_ = false;
    captured_.clear();
    log::warn(formatted("CUDA graphs for decoding are off, generation is slower: {}", why));
    return expected;
  };
  try {
    device::with_torch_errors([&] {
      captured.set(rows, model_);
      const auto compute = [this, &captured] {
        captured.hidden.copy_(model_.hidden_cached(captured.step, cache_));
      };
      compute();  // loads the kernels of the padded shape
      captured.work.emplace(pool_, compute);
      captured.work->launch();
    });
    ++num_launches_;
  } catch (const std::exception& error) {
    return give_up(error.what());
  }
  const at::Tensor launched = captured.hidden.narrow(0, 0, std::ssize(rows.tokens));
  // Products of other shapes round differently. A wrong input changes whole rows.
  const double bound = captured.hidden.element_size() == 2 ? 5e-2 : 1e-3;
  const auto norm = expected.to(at::kDouble).norm().item<double>();
  const double difference =
      (launched.to(at::kDouble) - expected.to(at::kDouble)).norm().item<double>() / norm;
  if (std::isfinite(norm) && !(difference <= bound))  // a NaN only in the graph is an error
    return give_up(formatted(
        "the hidden states of a launched step differ from the expected ones by {} of their norm; "
        "rounding explains at most {}",
        number_text(difference), number_text(bound)));
  return expected;
}

std::unique_ptr<DecodeGraphs> make_decode_graphs(const std::string& mode, model::Transformer& model,
                                                 const model::KvCache& cache, int num_ranks) {
  if (mode == "false") return nullptr;
  const std::string reason = reason_against_decode_graphs(model, num_ranks);
  if (reason.empty()) return std::make_unique<DecodeGraphs>(model, cache);
  static std::once_flag warned;  // rl makes an engine for each rollout
  if (mode == "true")
    std::call_once(warned,
                   [&] { log::warn(formatted("decoding runs without CUDA graphs: {}", reason)); });
  return nullptr;
}

}  // namespace trireme::generate
