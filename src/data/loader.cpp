#include "data/loader.hpp"

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/process/failpoints.hpp"
#include "core/timer.hpp"

namespace trireme::data {

std::int64_t accumulation_steps_of(std::int64_t global_batch, std::int64_t micro_batch,
                                   int data_ranks) {
  const std::int64_t sequences = micro_batch * data_ranks;
  if (global_batch < sequences || global_batch % sequences != 0) {
    fail(
        ErrorKind::usage,
        "train.global_batch = {}, must be a multiple of {} (train.micro_batch {} x {} data-parallel ranks): use another number of ranks or another train.micro_batch",
        global_batch, sequences, micro_batch, data_ranks);
  }
  return global_batch / sequences;
}

DataLoader::DataLoader(const SampleStream& stream, const LoaderConfig& config)
    : stream_(stream), config_(config) {
  if (config.micro_batch < 1 || config.size < 1 || config.rank < 0 || config.rank >= config.size ||
      config.prefetch < 1 || config.next_sample < 0 || config.end_sample < 1) {
    fail(ErrorKind::usage,
         "data loader: micro_batch {}, rank {} of {}, prefetch {}, next sample {}: out of range",
         config.micro_batch, config.rank, config.size, config.prefetch, config.next_sample);
  }
  make_spans();
  thread_ = std::thread([this] { produce(); });
}

void DataLoader::make_spans() {
  const BatchPhases phases = config_.phases.value_or(BatchPhases(config_.global_batch));
  for (const auto& [after_step, global_batch] : phases.phases()) {
    Span span{after_step, 0, config_.next_sample, global_batch,
              accumulation_steps_of(global_batch, config_.micro_batch, config_.size)};
    if (!spans_.empty()) {
      const Span& before = spans_.back();
      const std::int64_t updates = after_step - before.first_update;
      span.first_micro_step = before.first_micro_step + updates * before.micro_steps;
      span.first_sample = before.first_sample + updates * before.global_batch;
    }
    spans_.push_back(span);
  }
}

const DataLoader::Span& DataLoader::span_of(std::int64_t micro_step) const {
  const auto next = std::find_if(spans_.begin() + 1, spans_.end(), [&](const Span& span) {
    return span.first_micro_step > micro_step;
  });
  return *std::prev(next);
}

const DataLoader::Span& DataLoader::span_of_update(std::int64_t update) const {
  const auto next = std::find_if(spans_.begin() + 1, spans_.end(),
                                 [&](const Span& span) { return span.first_update > update; });
  return *std::prev(next);
}

std::int64_t DataLoader::update_of(std::int64_t micro_step) const {
  const Span& span = span_of(micro_step);
  return span.first_update + (micro_step - span.first_micro_step) / span.micro_steps;
}

std::int64_t DataLoader::begin_of(std::int64_t update) const {
  const Span& span = span_of_update(update);
  return span.first_sample + (update - span.first_update) * span.global_batch;
}

DataLoader::~DataLoader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::int64_t DataLoader::first_sample(std::int64_t micro_step) const {
  const Span& span = span_of(micro_step);
  const std::int64_t step = (micro_step - span.first_micro_step) % span.micro_steps;
  return begin_of(update_of(micro_step)) +
         (step * config_.size + config_.rank) * config_.micro_batch;
}

std::int64_t DataLoader::count_share(std::int64_t update) const {
  const Span& span = span_of_update(update);
  const std::int64_t begin =
      span.first_micro_step + (update - span.first_update) * span.micro_steps;
  std::int64_t targets = 0;
  for (std::int64_t step = 0; step < span.micro_steps; ++step) {
    const std::int64_t first = first_sample(begin + step);
    targets +=
        stream_.count_targets(first, std::min(config_.micro_batch, config_.end_sample - first));
  }
  return targets;
}

std::int64_t DataLoader::samples_of(std::int64_t update) const {
  const std::int64_t size = span_of_update(update).global_batch;
  return std::clamp<std::int64_t>(config_.end_sample - begin_of(update), 0, size);
}

Batch DataLoader::make(std::int64_t micro_step) const {
  failpoint("data.batch");
  Batch batch =
      stream_.make_batch(first_sample(micro_step), config_.micro_batch, config_.end_sample);
  batch.update_samples = samples_of(update_of(micro_step));
  batch.update_batches = (batch.update_samples - 1) / config_.micro_batch + 1;
  return batch;
}

void DataLoader::produce() {
  try {
    std::int64_t counted = 0;  // number of counted updates
    for (std::int64_t micro_step = 0; samples_of(update_of(micro_step)) > 0; ++micro_step) {
      for (; counted <= update_of(micro_step) + 1; ++counted) {
        const std::int64_t share = count_share(counted);
        const std::lock_guard lock(mutex_);
        shares_.push_back(share);
        changed_.notify_all();
      }
      Batch batch = make(micro_step);
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] {
        return stop_ || ready_.size() < static_cast<std::size_t>(config_.prefetch);
      });
      if (stop_) return;
      ready_.push_back(std::move(batch));
      changed_.notify_all();
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    error_ = std::current_exception();
    changed_.notify_all();
  }
}

template <class T>
T DataLoader::take(std::deque<T>& queue) {
  const Timer timer;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return error_ || !queue.empty(); });
  if (queue.empty()) std::rethrow_exception(error_);
  T first = std::move(queue.front());
  queue.pop_front();
  wait_s_ += timer.seconds();
  changed_.notify_all();
  return first;
}

Batch DataLoader::next() {
  TRIREME_ASSERT(samples_of(update_of(taken_)) > 0);
  Batch batch = take(ready_);
  ++taken_;
  return batch;
}

std::int64_t DataLoader::next_num_targets() {
  return take(shares_);
}

std::int64_t DataLoader::next_sample() const {
  const std::int64_t next = begin_of(update_of(taken_));
  return std::min(next, std::max(config_.end_sample, config_.next_sample));
}

}  // namespace trireme::data
