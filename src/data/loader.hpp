#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "data/batch.hpp"
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
};

/// Returns the gradient-accumulation steps of one update: global_batch / (micro_batch *
/// data_ranks). Throws Error(usage) unless that is a whole number.
std::int64_t accumulation_steps_of(std::int64_t global_batch, std::int64_t micro_batch,
                                   int data_ranks);

/// Provides the batches of this rank; one thread prepares them in advance. Also provides the number
/// of targets of this rank in each update, counted from tables one update ahead of the batches.
///
/// Update u, counted from the start, covers the global samples [n + u*G, n + (u+1)*G), n =
/// next_sample, G = global_batch. It has G / (size * micro_batch) accumulation steps. Step a of
/// rank r has the micro_batch samples from n + u*G + (a*size + r) * micro_batch. The union over
/// ranks is therefore the same for every number of ranks. next_sample() at the end of an update is
/// the whole state, and valid for any number of ranks.
///
/// The update that reaches end_sample is the last one. On every rank it has as many accumulation
/// steps as the others, so that all ranks enter the same collectives. Rows of padding (kNoSample),
/// possibly whole batches of them, replace the missing samples. Without end_sample the samples
/// never end: see SampleStream.
class DataLoader {
 public:
  /// `stream` must outlive the loader. Throws Error(usage) if global_batch is not a multiple of
  /// size * micro_batch.
  DataLoader(const SampleStream& stream, const LoaderConfig& config);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// Returns the batch of the next accumulation step. Sets update_samples and update_batches; the
  /// caller adds the targets of all ranks for update_targets. Must not be called after the last
  /// update. Rethrows an error of the thread.
  Batch next();

  /// Returns the number of targets in this rank's part of the next update, in order of the calls.
  /// May be called one update ahead of its first batch. Rethrows an error of the thread.
  std::int64_t next_num_targets();

  /// Returns the first global sample of the update that next() continues; equal on all ranks at the
  /// end of an update.
  [[nodiscard]] std::int64_t next_sample() const;

  /// Returns the total time that next() and next_num_targets() have waited for the thread, in seconds.
  [[nodiscard]] double wait_s() const noexcept { return wait_s_; }

  [[nodiscard]] std::int64_t micro_steps() const noexcept { return micro_steps_; }

 private:
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
  std::int64_t micro_steps_ = 1;
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
