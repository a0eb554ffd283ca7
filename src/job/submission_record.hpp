#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "job/run_folder.hpp"

namespace trireme {

/// A job that `trireme submit` has queued for a run: `submit/N/job.json` in the run directory.
struct SubmissionRecord {
  std::string job;         // id of the scheduler; for dependent jobs the id of the array
  std::int64_t chain = 1;  // number of dependent jobs that run one after another
  double time = 0;         // Unix time of the submission
};

/// Writes the record into `place`, the directory of this submission. Throws Error(resource).
void write_submission(const std::filesystem::path& place, const SubmissionRecord& record);

/// Returns the submissions of a run, oldest first. Skips directories without a readable record.
std::vector<SubmissionRecord> read_submissions(const RunFolder& folder);

}  // namespace trireme
