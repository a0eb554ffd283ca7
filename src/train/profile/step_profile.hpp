#pragma once
#include <ATen/core/Tensor.h>

#include <filesystem>
#include <memory>
#include <optional>

#include "comm/communicator.hpp"
#include "core/timer.hpp"
#include "core/writer_thread.hpp"
#include "train/config/profile_request.hpp"
#include "train/profile/phase_times.hpp"

namespace trireme::train {

/// Profiles steps of a run on the requested ranks: a Chrome trace with the operations of LibTorch
/// and the named ranges of this rank, and the times of the phases. Every rank has this object.
///
/// Between profiles, it costs two comparisons per step. The results of training do not change. On a
/// GPU, each change of the phase waits for the stream of the rank, so that a phase has the time of
/// its device work; profiled steps are slower there.
class StepProfile final : public RangeObserver {
 public:
  /// `files` writes the traces. `world` must outlive this object.
  StepProfile(std::filesystem::path folder, comm::Communicator& world, at::Device device,
              WriterThread& files);
  ~StepProfile() override;

  /// Sets the steps and ranks of the next profile. Steps up to `done_step` are over: if no requested
  /// step is left, nothing is profiled. Returns false if a profile is pending or active already.
  bool request(const ProfileRequest& request, std::int64_t done_step);

  /// Call it at the end of each step and once before the first step, between two ranges. Starts the
  /// profile before its first step and ends it after its last one. Collective.
  void step_ended(std::int64_t step);

  /// Returns true if the next step is profiled on any rank. Equal on all ranks.
  [[nodiscard]] bool is_active() const { return active_; }

  /// Ends an active profile early, for a run that stops. Collective.
  void finish();

  void begin(Phase phase, const std::string& name) override;
  void end() override;

 private:
  class Trace;

  void start(std::int64_t first_step);
  void stop();
  /// Returns the time of this rank in seconds, after its device work so far.
  double now_s() const;

  std::filesystem::path folder_;
  comm::Communicator& world_;
  at::Device device_;
  WriterThread& files_;
  std::optional<ProfileRequest> request_;
  bool active_ = false;  // equal on all ranks
  std::int64_t first_step_ = 0;
  std::int64_t done_step_ = 0;
  Timer timer_;
  std::optional<PhaseTimes> times_;  // only on profiled ranks
  std::unique_ptr<Trace> trace_;     // only on profiled ranks
};

}  // namespace trireme::train
