#include "generate/engine.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/timer.hpp"
#include "device/torch_errors.hpp"
#include "generate/cache/kv_pages.hpp"
#include "generate/cache/schedule.hpp"
#include "generate/decode_graphs.hpp"
#include "generate/logit_row.hpp"
#include "generate/model_ranks.hpp"
#include "generate/thread_choice.hpp"
#include "model/transformer.hpp"

namespace trireme::generate {
namespace {

/// Rows of logits computed at a time. All rows of a long prompt would take gigabytes.
constexpr std::int64_t kLogitRows = 64;

}  // namespace

struct GenerationEngine::Impl {
  Impl(model::Transformer& the_model, const text::Tokenizer& the_tokenizer,
       const EngineConfig& wanted, ModelRanks* the_ranks)
      : model(the_model),
        ranks(the_ranks),
        tokenizer(the_tokenizer),
        config(resolved(wanted, the_model, split())),
        unused(unused_ids(the_tokenizer, the_model.config().vocab_size)),
        schedule(config, num_kv_blocks(config, model, split())),
        cache(device::with_torch_errors([&] {
          const std::int64_t blocks = schedule.counters().kv_blocks_total;
          if (ranks != nullptr) ranks->make_cache(blocks);
          return model.make_cache(blocks);
        })),
        pages(cache),
        graphs(make_decode_graphs(config.cuda_graph, model, cache, split().ranks)),
        threads(most_threads(model, split())),
        counters(schedule.counters()) {}

  model::Transformer& model;
  ModelRanks* ranks;
  const text::Tokenizer& tokenizer;
  EngineConfig config;
  std::vector<std::uint32_t> unused;  // ids that are not tokens, which are never sampled

  // Used by the stepping thread only.
  Schedule schedule;
  model::KvCache cache;
  KvPages pages;
  std::unique_ptr<DecodeGraphs> graphs;  // null: steps are not captured
  ThreadChoice threads;
  std::int64_t generated_tokens = 0;
  std::vector<double> logits;   // one row
  std::vector<double> weighed;  // the row after penalties and mask

  // Shared by all threads.
  std::mutex mutex;
  std::condition_variable_any changed;
  std::vector<std::unique_ptr<ActiveSequence>> arrived;
  std::vector<RequestId> cancelled;
  RequestId last_id = 0;
  std::int64_t present = 0;  // requests that have not finished
  bool has_ended = false;    // no request is accepted any more
  EngineCounters counters;   // after the last step

  [[nodiscard]] ModelSplit split() const {
    return ranks == nullptr ? ModelSplit{} : ranks->split();
  }

  bool take_arrivals();
  void compute_timed(const std::vector<SequenceRows>& step);
  void compute(const std::vector<SequenceRows>& step);
  [[nodiscard]] at::Tensor hidden_of(const std::vector<SequenceRows>& step,
                                     const std::vector<std::int64_t>& kept);
  [[nodiscard]] at::Tensor logits_of(const at::Tensor& hidden, std::int64_t first,
                                     std::int64_t rows) const;
  /// Adds the hidden states [rows, D] to the sums of the sequences of `tokens`, by row.
  static void add_hidden(const std::vector<ActiveSequence*>& tokens, const at::Tensor& hidden);
  void set_unused(std::span<double> row, double value) const;
  void take_logits(ActiveSequence& text, std::int64_t index);
  void draw(ActiveSequence& text, Delta& delta);
  void end(ActiveSequence& text, Delta delta, FinishReason reason);
  void fail_sequence(ActiveSequence& text, const Error& error);
  void end_step();
};

void GenerationEngine::Impl::end(ActiveSequence& text, Delta delta, FinishReason reason) {
  delta.text += text.answer.finish();
  if (reason == FinishReason::length && text.answer.stopped()) reason = FinishReason::stop;
  delta.finish = reason;
  delta.cached_tokens = text.cached_tokens;
  text.finished = true;
  {
    // Decrement before the caller is notified: the callback may submit the next request at once.
    const std::lock_guard lock(mutex);
    --present;
  }
  text.on_delta(std::move(delta));
}

void GenerationEngine::Impl::fail_sequence(ActiveSequence& text, const Error& error) {
  Delta delta;
  delta.error = error;
  end(text, std::move(delta), FinishReason::error);
}

/// Returns true if a request arrived or was cancelled.
bool GenerationEngine::Impl::take_arrivals() {
  std::vector<std::unique_ptr<ActiveSequence>> texts;
  std::vector<RequestId> gone;
  {
    const std::lock_guard lock(mutex);
    texts.swap(arrived);
    gone.swap(cancelled);
    counters.waiting += static_cast<std::int64_t>(texts.size());
  }
  const bool any = !texts.empty() || !gone.empty();
  for (auto& text : texts) schedule.add(std::move(text));
  if (gone.empty()) return any;
  schedule.for_each([&](ActiveSequence& text) {
    if (std::find(gone.begin(), gone.end(), text.id) != gone.end())
      end(text, {}, FinishReason::cancelled);
  });
  schedule.remove_finished();
  return any;
}

at::Tensor GenerationEngine::Impl::hidden_of(const std::vector<SequenceRows>& step,
                                             const std::vector<std::int64_t>& kept) {
  StepRows rows;
  rows.kept = kept;
  for (const SequenceRows& part : step) {
    const ActiveSequence& text = *part.text;
    rows.texts.push_back(
        {static_cast<std::int64_t>(rows.tokens.size()), part.rows, text.computed, text.blocks});
    for (std::int64_t index = text.computed; index < text.computed + part.rows; ++index) {
      const auto at = static_cast<std::size_t>(index);
      rows.tokens.push_back(text.tokens[at]);
      rows.previous.push_back(at == 0 ? -1 : static_cast<std::int64_t>(text.tokens[at - 1]));
      rows.positions.push_back(index);
    }
  }
  if (graphs) return graphs->compute_rows(rows);
  if (ranks == nullptr) return compute_rows(model, rows, cache, nullptr);
  ranks->compute_rows(rows);
  at::Tensor hidden = compute_rows(model, rows, cache, ranks->pipeline());
  ranks->end_step();
  return hidden;
}

at::Tensor GenerationEngine::Impl::logits_of(const at::Tensor& hidden, std::int64_t first,
                                             std::int64_t rows) const {
  if (ranks == nullptr) return model.logits(hidden.narrow(0, first, rows)).to(at::kCPU);
  ranks->logits(first, rows);
  at::Tensor some = compute_logits(model, hidden, first, rows, ranks->pipeline());
  ranks->end_step();
  return some;
}

/// Computes the step with the chosen number of threads.
void GenerationEngine::Impl::compute_timed(const std::vector<SequenceRows>& step) {
  if (threads.most() == 1) return compute(step);
  std::int64_t rows = 0;
  for (const SequenceRows& part : step) rows += part.rows;
  const ScopedThreads chosen(threads.threads(rows));
  const Timer timer;
  compute(step);
  threads.took(rows, timer.seconds());
}

void GenerationEngine::Impl::compute(const std::vector<SequenceRows>& step) {
  struct Wanted {
    ActiveSequence* text;
    std::int64_t index;  // the token before the predicted one
  };

  std::vector<Wanted> wanted;
  std::vector<std::int64_t> kept;       // rows of `wanted`, then rows of `summed`
  std::vector<ActiveSequence*> summed;  // one entry for each row that an embedding adds
  std::vector<std::int64_t> summed_rows;
  std::int64_t row = 0;
  for (const SequenceRows& part : step) {
    for (std::int64_t index = part.text->computed; index < part.text->computed + part.rows;
         ++index, ++row) {
      if (part.text->wants_hidden(index)) {
        summed.push_back(part.text);
        summed_rows.push_back(row);
      }
      if (!part.text->wants_logits(index)) continue;
      wanted.push_back({part.text, index});
      kept.push_back(row);
    }
  }
  kept.insert(kept.end(), summed_rows.begin(), summed_rows.end());
  const at::Tensor hidden = hidden_of(step, kept);
  for (const SequenceRows& part : step) part.text->computed += part.rows;
  if (!summed.empty())
    add_hidden(summed, hidden.narrow(0, static_cast<std::int64_t>(wanted.size()),
                                     static_cast<std::int64_t>(summed.size())));
  for (std::size_t first = 0; first < wanted.size(); first += kLogitRows) {
    const std::int64_t rows =
        std::min<std::int64_t>(kLogitRows, static_cast<std::int64_t>(wanted.size() - first));
    const at::Tensor some = logits_of(hidden, static_cast<std::int64_t>(first), rows);
    for (std::int64_t i = 0; i < rows; ++i) {
      const Wanted& one = wanted[first + static_cast<std::size_t>(i)];
      if (one.text->finished) continue;
      copy_row(some, i, logits);
      const auto error = comm::capture([&] { take_logits(*one.text, one.index); });
      if (error) fail_sequence(*one.text, *error);
    }
  }
  for (const SequenceRows& part : step) {
    ActiveSequence& text = *part.text;
    if (text.finished || text.request.max_tokens > 0 || text.computed < text.length()) continue;
    Delta delta;
    delta.prompt = text.take_prompt_reports();
    const auto error = comm::capture([&] { delta.embedding = text.mean_hidden(); });
    if (error) {
      fail_sequence(text, *error);
    } else {
      end(text, std::move(delta), FinishReason::length);
    }
  }
}

void GenerationEngine::Impl::add_hidden(const std::vector<ActiveSequence*>& tokens,
                                        const at::Tensor& hidden) {
  const at::Tensor values = hidden.to(at::kCPU, at::kDouble).contiguous();
  const auto width = static_cast<std::size_t>(values.size(1));
  const double* row = values.const_data_ptr<double>();
  // Rows are added in the order of the tokens, so that the sum does not depend on the chunks.
  for (ActiveSequence* text : tokens) {
    text->hidden_sum.resize(width, 0.0);
    for (std::size_t i = 0; i < width; ++i) text->hidden_sum[i] += row[i];
    ++text->summed_tokens;
    row += width;
  }
}

void GenerationEngine::Impl::set_unused(std::span<double> row, double value) const {
  for (const std::uint32_t id : unused) row[id] = value;
}

void GenerationEngine::Impl::take_logits(ActiveSequence& text, std::int64_t index) {
  check_finite(logits, index + 1, "weights or activations are NaN or infinite");
  set_unused(logits, -INFINITY);  // must precede any softmax
  if (index + 1 < text.prompt_length()) {
    text.prompt_reports.push_back(report_token(logits,
                                               text.tokens[static_cast<std::size_t>(index + 1)],
                                               text.request.top_logprobs.value_or(0)));
    return;
  }
  Delta delta;
  delta.prompt = text.take_prompt_reports();
  draw(text, delta);
}

void GenerationEngine::Impl::draw(ActiveSequence& text, Delta& delta) {
  const Request& request = text.request;
  weighed = logits;
  set_unused(weighed, 0);  // so that the check below sees only penalties and bias
  text.history.apply(request.sampling, weighed);
  check_finite(weighed, text.length(), "penalties and bias make the logits infinite");
  set_unused(weighed, -INFINITY);
  if (request.mask) apply_mask(*request.mask, weighed);
  const std::uint32_t id = sample_token(weighed, request.sampling,
                                        static_cast<std::uint64_t>(text.drawn()), request.answer);
  ++generated_tokens;
  if (request.sampled_logprobs)
    delta.sampled.push_back({id, sampled_logprob(weighed, request.sampling.temperature, id)});
  if (request.mask) request.mask->accept(id);
  const auto& ends = request.end_tokens;
  if (!request.ignore_eos && std::find(ends.begin(), ends.end(), id) != ends.end())
    return end(text, std::move(delta), FinishReason::stop);
  delta.tokens.push_back(request.top_logprobs ? report_token(logits, id, *request.top_logprobs)
                                              : TokenReport{id, {}, {}});
  text.tokens.push_back(id);
  text.history.add(id);
  delta.text += text.answer.push(id);
  if (text.answer.stopped()) return end(text, std::move(delta), FinishReason::stop);
  if (text.drawn() == request.max_tokens || text.length() >= config.max_context)
    return end(text, std::move(delta), FinishReason::length);
  text.on_delta(std::move(delta));
}

void GenerationEngine::Impl::end_step() {
  schedule.remove_finished();
  const std::lock_guard lock(mutex);
  counters = schedule.counters();
  counters.generated_tokens = generated_tokens;
  counters.graph_launches = graphs ? graphs->num_launches() : 0;
}

GenerationEngine::GenerationEngine(model::Transformer& model, const text::Tokenizer& tokenizer,
                                   const EngineConfig& config, ModelRanks* ranks)
    : impl_(std::make_unique<Impl>(model, tokenizer, config, ranks)) {}

GenerationEngine::~GenerationEngine() = default;

std::optional<RequestProblem> GenerationEngine::find_problem(const Request& request) const {
  return trireme::generate::find_problem(request, impl_->model.config().vocab_size,
                                         impl_->config.max_context);
}

std::optional<RequestId> GenerationEngine::submit(Request request, OnDelta on_delta, bool follows) {
  if (const auto problem = find_problem(request))
    fail(ErrorKind::usage, "{} = {}", problem->field, problem->message);
  const std::lock_guard lock(impl_->mutex);
  const EngineConfig& config = impl_->config;
  // A sum with max_queue could overflow, because max_queue may be any number.
  const bool is_full =
      config.max_queue > 0 && impl_->present - config.max_batch >= config.max_queue;
  if (impl_->has_ended || (is_full && !follows)) return std::nullopt;
  ++impl_->present;
  const RequestId id = ++impl_->last_id;
  impl_->arrived.push_back(std::make_unique<ActiveSequence>(id, std::move(request),
                                                            std::move(on_delta), impl_->tokenizer));
  impl_->changed.notify_one();
  return id;
}

void GenerationEngine::cancel(RequestId id) {
  const std::lock_guard lock(impl_->mutex);
  impl_->cancelled.push_back(id);
  impl_->changed.notify_one();
}

bool GenerationEngine::has_ended() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->has_ended;
}

bool GenerationEngine::step() {
  const bool changed = impl_->take_arrivals();
  const std::vector<SequenceRows> step = impl_->schedule.next_step();
  impl_->pages.reach(impl_->schedule.blocks_reached());
  if (!step.empty()) {
    const auto error =
        comm::capture([&] { device::with_torch_errors([&] { impl_->compute_timed(step); }); });
    if (error && impl_->ranks != nullptr) throw Error(*error);
    if (error) {
      impl_->schedule.forget();
      for (const SequenceRows& part : step) {
        if (!part.text->finished) impl_->fail_sequence(*part.text, *error);
      }
    }
  }
  impl_->end_step();
  return changed || !step.empty();
}

void GenerationEngine::run(std::stop_token stop) {
  while (!stop.stop_requested()) {
    if (step()) continue;
    std::unique_lock lock(impl_->mutex);
    impl_->changed.wait(lock, stop,
                        [&] { return !impl_->arrived.empty() || !impl_->cancelled.empty(); });
  }
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->has_ended = true;
  }
  impl_->take_arrivals();
  impl_->schedule.for_each(
      [&](ActiveSequence& text) { impl_->end(text, {}, FinishReason::cancelled); });
  impl_->end_step();
}

EngineCounters GenerationEngine::counters() const {
  const std::lock_guard lock(impl_->mutex);
  EngineCounters counters = impl_->counters;
  counters.waiting += static_cast<std::int64_t>(impl_->arrived.size());
  return counters;
}

const EngineConfig& GenerationEngine::config() const {
  return impl_->config;
}

}  // namespace trireme::generate
