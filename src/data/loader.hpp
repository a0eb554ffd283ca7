#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "data/batch.hpp"
#include "data/order/stream.hpp"

namespace trireme {

struct LoaderConfig {
  std::int64_t micro_batch = 1;   // samples (sequences or pairs) a batch of one rank
  std::int64_t global_batch = 1;  // samples an update, over all ranks and micro-steps
  int rank = 0;                   // on the data-parallel axis
  int size = 1;
  std::int64_t next_sample = 0;      // global sample index of the first update
  int prefetch = 4;                  // batches made ahead
  std::int64_t end_sample = kNoEnd;  // the first one that is not of the run
};

/// Micro-steps of one update: global_batch / (micro_batch * data_ranks). Throws Error(usage) unless
/// that is a whole number.
std::int64_t micro_steps_of(std::int64_t global_batch, std::int64_t micro_batch, int data_ranks);

/// This rank's batches, made ahead by one thread, and how many targets its share of an update has,
/// counted from tables an update ahead of the batches.
///
/// Update u, counted from the start, is the global samples [n + u*G, n + (u+1)*G), n = next_sample,
/// G = global_batch. It has G / (size * micro_batch) micro-steps; micro-step a of rank r is the
/// micro_batch samples from n + u*G + (a*size + r) * micro_batch. The union over ranks is therefore
/// the same for every number of ranks, and next_sample() at an update's end is all the state there
/// is, valid for any number of ranks.
///
/// The update that reaches end_sample is the last one and ends there. It has as many micro-steps as
/// the others on every rank, so that all ranks enter the same collectives: in place of the samples
/// that it lacks stand rows of padding (kNoSample), possibly whole batches of them. Without
/// end_sample the samples never end: see SampleStream.
class DataLoader {
 public:
  /// `stream` must outlive this. Throws Error(usage) if global_batch is no multiple
  /// of size * micro_batch.
  DataLoader(const SampleStream& stream, const LoaderConfig& config);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;
  DataLoader(DataLoader&&) = delete;
  DataLoader& operator=(DataLoader&&) = delete;

  /// The next micro-step's batch, with update_samples and update_batches filled; update_targets is
  /// for whoever adds up the shares of all ranks. Not to be asked for behind the last update.
  /// Rethrows what the thread met.
  Batch next();

  /// Targets of this rank's share of the next update that was not asked for yet. May be asked for
  /// one update before its first batch. Rethrows what the thread met.
  std::int64_t next_share();

  /// First global sample of the update that next() will go on with:
  /// equal on all ranks at an update's end.
  [[nodiscard]] std::int64_t next_sample() const;

  /// Seconds that next() and next_share() have waited for the thread, so far.
  [[nodiscard]] double wait_s() const noexcept { return wait_s_; }

  [[nodiscard]] std::int64_t micro_steps() const noexcept { return micro_steps_; }

 private:
  void produce();
  /// Of `micro_step`, counted from the start: this rank's first sample.
  [[nodiscard]] std::int64_t first_sample(std::int64_t micro_step) const;
  [[nodiscard]] std::int64_t count_share(std::int64_t update) const;
  /// Samples of an update over all ranks; 0 behind the last one.
  [[nodiscard]] std::int64_t samples_of(std::int64_t update) const;
  [[nodiscard]] Batch make(std::int64_t micro_step) const;
  template <class T>
  T take(std::deque<T>& queue);

  const SampleStream& stream_;
  LoaderConfig config_;
  std::int64_t micro_steps_ = 1;
  std::int64_t taken_ = 0;  // batches handed out
  double wait_s_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Batch> ready_;
  std::deque<std::int64_t> shares_;  // of updates, in order
  std::exception_ptr error_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace trireme
