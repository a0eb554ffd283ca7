#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme::train {

/// The steps and ranks of a profile: the value of train.profile or the text in RUN/PROFILE.
struct ProfileRequest {
  std::int64_t first_step = 0;  // 0: not given
  std::int64_t last_step = 0;
  bool all_ranks = false;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranks{{0, 0}};  // first and last of each range

  [[nodiscard]] bool has_rank(std::int64_t rank) const;
};

/// The largest number of steps in one profile, because each operation of a step takes memory.
inline constexpr std::int64_t kMostProfiledSteps = 1000;

/// Number of steps of a profile that a file RUN/PROFILE requests without steps.
inline constexpr std::int64_t kLiveProfileSteps = 3;

/// Reads "steps=10:13,ranks=0,2,4:7". Both ends of a range belong to it. Without ranks, rank 0 is
/// profiled. Throws Error(usage) with the allowed form.
ProfileRequest parse_profile(std::string_view text);

/// Reads the text of RUN/PROFILE. Without steps, it profiles the steps that follow the next one,
/// because all ranks learn of the request in the step after `done_step`. Throws Error(usage) if the
/// text is wrong or the steps are over.
ProfileRequest live_profile(std::string_view text, std::int64_t done_step);

/// Throws Error(usage) if a rank of the request does not exist.
void check_profile_ranks(const ProfileRequest& request, std::int64_t num_ranks);

}  // namespace trireme::train
