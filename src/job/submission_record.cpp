#include "job/submission_record.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"

namespace trireme {
namespace {

constexpr const char* kRecord = "job.json";
constexpr std::size_t kMaxRecordBytes = std::size_t{1} << 16;

}  // namespace

void write_submission(const std::filesystem::path& place, const SubmissionRecord& record) {
  const Json json{{"job", record.job}, {"chain", record.chain}, {"time", record.time}};
  write_file_atomic(place / kRecord, json.dump() + "\n");
}

std::vector<SubmissionRecord> read_submissions(const RunFolder& folder) {
  std::vector<SubmissionRecord> records;
  std::error_code code;
  for (std::filesystem::directory_iterator it(folder.submit(), code), end; !code && it != end;
       it.increment(code)) {
    const std::filesystem::path file = it->path() / kRecord;
    try {
      const Json json = read_json(file, {.max_bytes = kMaxRecordBytes});
      const std::string where = file.string();
      records.push_back({json_get<std::string>(json, "job", where),
                         json_get<std::int64_t>(json, "chain", where),
                         json_get<double>(json, "time", where)});
    } catch (const Error&) {  // an older version wrote none, or the submission was refused
    }
  }
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.time < b.time; });
  return records;
}

}  // namespace trireme
