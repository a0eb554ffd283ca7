#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "data/batch.hpp"
#include "data/batch_phases.hpp"
#include "data/order/stream.hpp"

namespace trireme::data {

struct LoaderConfig {
  std::int64_t micro_batch = 1;   // samples (sequences or pairs) per batch of one rank
  std::int64_t global_batch = 1;  // samples per update, over all ranks and accumulation steps
  int rank = 0;                   // rank on the data-parallel axis
  int size = 1;
  std::int64_t next_sample = 0;      // global sample index of the first update
  int prefetch = 4;                  // number of batches prepared in advance
  std::int64_t end_sample = kNoEnd;  // first sample after the end of the run
  // sizes of the updates, counted from the first update of the loader; unset: global_batch
  std::optional<BatchPhases> phases{};
};

/// Returns the gradient-accumulation steps of one update: global_batch / (micro_batch *
/// data_ranks). Throws Error(usage) unless that is a whole number.
std::int64_t accumulation_steps_of(std::int64_t global_batch, std::int64_t micro_batch,
                                   int data_ranks);

/// Provides the batches of this rank. A thread prepares the batches in advance. The loader also
/// provides the number of targets of this rank in each update. It counts the targets from tables,
/// one update before it makes the batches.
///
/// Let n be the configured next_sample and G the global_batch. Update u (counted from 0) uses the
/// global samples [n + u*G, n + (u+1)*G). It has G / (size * micro_batch) accumulation steps. In
/// step a, rank r gets the micro_batch samples that begin at n + u*G + (a*size + r) * micro_batch.
/// Therefore all ranks together get the same samples for every number of ranks. At the end of an
/// update, the value of next_sample() is the whole state of the loader, and this state is valid for
/// any number of ranks.
///
/// The update that reaches end_sample is the last update. On every rank, the last update has as
/// many accumulation steps as every other update, so that all ranks enter the same collectives.
/// Rows of padding (kNoSample), possibly whole batches of them, replace the missing samples.
/// Without end_sample the samples never end: see SampleStream.
///
/// With `phases`, G and the number of accumulation steps change with the update. The samples of an
/// update still follow those of the update before.
class DataLoader {
 public:
  /// `stream` must outlive the loader. Throws Error(usage) if global_batch is not a multiple of
  /// size * micro_batch, also in each phase.
  DataLoader(const SampleStream& stream, const LoaderConfig& config);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// Returns the batch of the next accumulation step. Sets update_samples and update_batches. The
  /// caller sums the targets over all ranks and sets update_targets. Must not be called after the
  /// last update. Rethrows an error of the thread.
  Batch next();

  /// The first call returns the number of targets of this rank in the first update, the second call
  /// in the second update, and so on. May be called one update before next() returns the first
  /// batch of that update. Rethrows an error of the thread.
  std::int64_t next_num_targets();

  /// Returns the first global sample of the update that the next batch belongs to. At the end of an
  /// update, the value is equal on all ranks.
  [[nodiscard]] std::int64_t next_sample() const;

  /// Returns the total time that next() and next_num_targets() have waited for the thread, in
  /// seconds.
  [[nodiscard]] double wait_s() const noexcept { return wait_s_; }

  /// Returns the accumulation steps of the update that the next batch belongs to.
  [[nodiscard]] std::int64_t micro_steps() const noexcept { return span_of(taken_).micro_steps; }

 private:
  /// Consecutive updates of one size. Counts begin at the start of the loader.
  struct Span {
    std::int64_t first_update = 0;
    std::int64_t first_micro_step = 0;
    std::int64_t first_sample = 0;
    std::int64_t global_batch = 1;
    std::int64_t micro_steps = 1;
  };

  void make_spans();
  [[nodiscard]] const Span& span_of(std::int64_t micro_step) const;
  [[nodiscard]] const Span& span_of_update(std::int64_t update) const;
  [[nodiscard]] std::int64_t update_of(std::int64_t micro_step) const;
  /// Returns the first sample of an update, over all ranks.
  [[nodiscard]] std::int64_t begin_of(std::int64_t update) const;
  void produce();
  /// Returns the first sample of this rank in accumulation step `micro_step`, counted from the
  /// start.
  [[nodiscard]] std::int64_t first_sample(std::int64_t micro_step) const;
  [[nodiscard]] std::int64_t count_share(std::int64_t update) const;
  /// Returns the number of samples of an update over all ranks; 0 after the last update.
  [[nodiscard]] std::int64_t samples_of(std::int64_t update) const;
  [[nodiscard]] Batch make(std::int64_t micro_step) const;
  template <class T>
  T take(std::deque<T>& queue);

  const SampleStream& stream_;
  LoaderConfig config_;
  std::vector<Span> spans_;
  std::int64_t taken_ = 0;  // number of batches returned
  double wait_s_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  std::deque<std::int64_t> shares_;  // targets of this rank per update, in order
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace trireme::data
