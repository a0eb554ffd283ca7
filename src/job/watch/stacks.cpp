#include "job/watch/stacks.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <csignal>
#include <fstream>
#include <map>
#include <thread>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/join.hpp"
#include "core/process/run_program.hpp"
#include "core/timer.hpp"
#include "job/event_log.hpp"
#include "job/run_directory.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::job {
namespace {

namespace fs = std::filesystem;

// Time limit of scancel: it may have sent the signal and still retry forever.
constexpr double kSignal_s = 3;

std::map<std::string, std::uintmax_t> sizes_of(const fs::path& folder) {
  std::map<std::string, std::uintmax_t> sizes;
  std::error_code code;
  for (fs::directory_iterator it(folder, code), end; !code && it != end; it.increment(code))
    sizes[it->path().string()] = it->file_size(code);
  return sizes;
}

/// Returns the arguments of a process on this machine; empty if it has ended or belongs to another
/// user.
std::vector<std::string> arguments_of(const fs::path& process) {
  std::ifstream file(process / "cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

bool trains_in(const fs::path& process, const RunDirectory& folder) {
  const std::vector<std::string> words = arguments_of(process);
  std::error_code code;
  const fs::path place = fs::read_symlink(process / "cwd", code);
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string run;
    if (words[i] == "--run" && i + 1 < words.size()) run = words[i + 1];
    if (words[i].starts_with("--run=")) run = words[i].substr(6);
    if (!run.empty() && fs::equivalent(place / run, folder.root, code)) return true;
  }
  return false;
}

/// Returns the file name of the program that a process runs; "" if it is not known. The file may be
/// another version, or replaced since the process began.
std::string program_name(const fs::path& process) {
  constexpr std::string_view kReplaced = " (deleted)";
  std::error_code code;
  std::string name = fs::read_symlink(process / "exe", code).filename().string();
  if (name.ends_with(kReplaced)) name.resize(name.size() - kReplaced.size());
  return name;
}

/// Sends SIGUSR1 to the ranks on this machine that run this program. Returns their number.
int ask_local_ranks(const RunDirectory& folder) {
  std::error_code code;
  const std::string program = program_name("/proc/self");
  int asked = 0;
  for (fs::directory_iterator it("/proc", code), end; !code && it != end; it.increment(code)) {
    const std::string name = it->path().filename().string();
    int pid = 0;
    const auto [rest, wrong] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (wrong != std::errc{} || rest != name.data() + name.size() || pid <= 1) continue;
    if (program.empty() || program_name(it->path()) != program) continue;
    if (trains_in(it->path(), folder) && ::kill(pid, SIGUSR1) == 0) ++asked;
  }
  return asked;
}

/// Asks the ranks for their stacks. Returns the reason if no rank could be asked; "" otherwise.
std::string ask(const RunDirectory& folder, const std::string& job) {
  std::string refused = "no rank runs on this machine; run this command on the host of rank 0";
  if (!job.empty()) {
    const std::vector<std::string> words = scheduler::scheduler().stacks_words(job);
    const ProgramEnd end = run_program(words, kSignal_s);
    if (end.code == 0) return "";
    refused = formatted("{} {}: {}", joined(words, " "),
                        end.timed_out ? formatted("took more than {} s", kSignal_s)
                                      : formatted("ended with {}", end.code),
                        end.out);
    if (end.timed_out) return refused;
  }
  return ask_local_ranks(folder) > 0 ? "" : refused;
}

std::string from(const fs::path& file, std::uintmax_t offset) {
  const std::string text = read_file(file);
  return text.substr(std::min<std::size_t>(text.size(), offset));
}

/// Returns the word after `before`; "" if `before` is missing.
std::string word_after(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = text.substr(at + before.size());
  return std::string(rest.substr(0, rest.find_first_of(" ,\n")));
}

/// Returns the command that attaches gdb to the rank that wrote stack traces with the heading
/// `heading` ("== pid 17 on n2, in step 3: ..."). The command runs inside the job, or on this
/// machine if there is no job.
std::vector<std::string> attach_words(std::string_view heading, const std::string& job,
                                      const std::vector<std::string>& arguments) {
  const std::string pid = word_after(heading, "== pid ");
  const std::string host = word_after(heading, " on ");
  if (pid.empty() || host.empty())
    fail(ErrorKind::internal, "stacks without a process: {}", heading.substr(0, 80));
  std::vector<std::string> words;
  if (!job.empty()) {
    const bool on_terminal = ::isatty(STDIN_FILENO) != 0;
    words = scheduler::scheduler().beside_words(job, host.substr(0, host.find('.')), on_terminal);
  }
  words.insert(words.end(), {"gdb", "-p", pid});
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

}  // namespace

StackReport ask_for_stacks(const RunDirectory& folder, std::optional<std::int64_t> rank,
                           double wait_s) {
  const EventLogContent event_log = read_event_log(folder.event_log());
  if (event_log.attempts.empty() && !folder.holds_run() && read_submissions(folder).empty())
    fail(ErrorKind::data, "{} is not a run directory", folder.root.string());
  if (event_log.attempts.empty() || !event_log.attempts.back().start ||
      event_log.attempts.back().end)
    return {};
  const AttemptStart& attempt = *event_log.attempts.back().start;
  const auto before = sizes_of(folder.stacks());
  const std::string refused = ask(folder, attempt.attempt_id.job);
  StackReport report;
  report.ranks = attempt.ranks;
  const std::string wanted =
      rank ? (folder.stacks() / rank_file(static_cast<int>(*rank), ".txt")).string() : "";
  const Timer timer;
  bool is_whole = false;
  while (!is_whole && timer.seconds() < wait_s) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    report.written.clear();
    for (const auto& [file, size] : sizes_of(folder.stacks())) {
      const auto old = before.find(file);
      if (old == before.end() ? size > 0 : size > old->second) report.written.push_back(file);
    }
    const bool has_wanted =
        std::find(report.written.begin(), report.written.end(), wanted) != report.written.end();
    is_whole = rank ? has_wanted : static_cast<std::int64_t>(report.written.size()) >= report.ranks;
  }
  if (report.written.empty() && !refused.empty())
    fail(ErrorKind::usage, "no rank of {} could be reached: {}", folder.root.string(), refused);
  if (rank && is_whole) {
    std::this_thread::sleep_for(
        std::chrono::milliseconds(300));  // wait for the stacks of the other threads of the rank
    const auto old = before.find(wanted);
    report.of_rank = from(wanted, old == before.end() ? 0 : old->second);
  }
  return report;
}

std::vector<std::string> attach_to(const RunDirectory& folder, std::int64_t rank, double wait_s,
                                   const std::vector<std::string>& arguments) {
  const StackReport report = ask_for_stacks(folder, rank, wait_s);
  if (report.ranks == 0) return {};
  if (rank < 0 || rank >= report.ranks)
    fail(ErrorKind::usage, "--rank {}: the run has ranks 0 to {}", rank, report.ranks - 1);
  if (report.of_rank.empty())
    fail(ErrorKind::comm, "rank {} did not answer within {} s", rank, wait_s);
  const std::string job = read_event_log(folder.event_log()).attempts.back().start->attempt_id.job;
  return attach_words(report.of_rank, job, arguments);
}

}  // namespace trireme::job
