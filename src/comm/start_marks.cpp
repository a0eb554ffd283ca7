#include "comm/start_marks.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/number.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::comm {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = 4096;
constexpr const char* kPrefix = "rank-";
constexpr const char* kReported = "reported";
constexpr int kMostPasses = 10;

/// Returns a directory name that no other start of the same run has.
std::string name_of_start(const LauncherVariables& variables) {
  std::string name = "start";
  const auto add = [&name](const std::string& text) {
    name += '-';
    for (const char c : text) {
      const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.';
      name += plain ? c : '_';
    }
  };
  const scheduler::SchedulerVariables& names = scheduler::scheduler().variables();
  for (const char* variable : {names.job, "PMIX_NAMESPACE"}) {
    if (const auto found = variables.find(variable); found != variables.end()) add(found->second);
  }
  for (const char* variable : {names.restarts, names.step}) {
    if (const char* text = std::getenv(variable)) add(text);
  }
  return name.substr(0, 200);
}

}  // namespace

StartMarks::StartMarks(fs::path directory, const LauncherVariables& variables, int rank)
    : directory_(std::move(directory)), rank_(rank) {
  if (!directory_.empty()) start_ = directory_ / name_of_start(variables);
}

fs::path StartMarks::own() const {
  return start_ / formatted("{}{}", kPrefix, rank_);
}

bool StartMarks::put(const std::string& node, int pid) noexcept {
  if (start_.empty()) return false;
  try {
    for (fs::path parent = start_; parent.has_filename() && !fs::exists(parent);
         parent = parent.parent_path())
      made_ = parent;
    fs::create_directories(start_);
    std::ofstream file(own());
    file << node << ' ' << pid << '\n' << std::flush;
    return file.good();
  } catch (const std::exception&) {
    return false;
  }
}

void StartMarks::refresh() const noexcept {
  if (!start_.empty()) ::utimensat(AT_FDCWD, own().c_str(), nullptr, 0);
}

bool StartMarks::claim_report() const noexcept {
  const Fd claimed(
      ::open((start_ / kReported).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  return static_cast<bool>(claimed);
}

std::map<int, StartMark> StartMarks::read() const noexcept {
  std::map<int, StartMark> marks;
  if (start_.empty()) return marks;
  try {
    std::map<int, fs::file_time_type> times;
    fs::file_time_type newest = fs::file_time_type::min();
    for (const fs::directory_entry& entry : fs::directory_iterator(start_)) {
      const std::string name = entry.path().filename().string();
      const auto rank = name.starts_with(kPrefix)
                            ? parse_integer(name.substr(std::string_view(kPrefix).size()))
                            : std::nullopt;
      if (!rank) continue;
      std::istringstream words(read_file(entry.path(), kMostBytes));
      StartMark& mark = marks[static_cast<int>(*rank)];
      words >> mark.node >> mark.pid;
      times[static_cast<int>(*rank)] = entry.last_write_time();
      newest = std::max(newest, entry.last_write_time());
    }
    for (auto& [rank, mark] : marks)
      mark.behind_s = std::chrono::duration<double>(newest - times[rank]).count();
  } catch (const std::exception&) {  // the marks read so far are valid
  }
  return marks;
}

void StartMarks::remove() const noexcept {
  if (start_.empty()) return;
  std::error_code ignored;
  fs::remove(own(), ignored);
  // Other ranks remove their own marks at the same time, so remove_all() may fail. Try several
  // times.
  for (int pass = 0; rank_ == 0 && pass < kMostPasses && fs::exists(directory_, ignored); ++pass)
    fs::remove_all(directory_, ignored);
  // remove() keeps a directory that is not empty.
  for (fs::path parent = start_; !made_.empty() && parent.string().size() >= made_.string().size();
       parent = parent.parent_path())
    fs::remove(parent, ignored);
}

}  // namespace trireme::comm
