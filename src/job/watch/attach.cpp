#include "job/watch/attach.hpp"

#include <unistd.h>

#include "core/error.hpp"
#include "job/journal.hpp"
#include "job/watch/stacks.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme {
namespace {

/// The word behind `before`; "" if it is not there.
std::string word_after(std::string_view text, std::string_view before) {
  const std::size_t at = text.find(before);
  if (at == std::string_view::npos) return "";
  const std::string_view rest = text.substr(at + before.size());
  return std::string(rest.substr(0, rest.find_first_of(" ,\n")));
}

}  // namespace

std::vector<std::string> attach_words(std::string_view heading, const std::string& job,
                                      const std::vector<std::string>& arguments) {
  const std::string pid = word_after(heading, "== pid ");
  const std::string host = word_after(heading, " on ");
  if (pid.empty() || host.empty())
    fail(ErrorKind::internal, "stacks without a process: {}", heading.substr(0, 80));
  std::vector<std::string> words;
  if (!job.empty()) {
    const bool on_terminal = ::isatty(STDIN_FILENO) != 0;
    words = scheduler().beside_words(job, host.substr(0, host.find('.')), on_terminal);
  }
  words.insert(words.end(), {"gdb", "-p", pid});
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

std::vector<std::string> attach_to(const RunFolder& folder, std::int64_t rank, double wait_s,
                                   const std::vector<std::string>& arguments) {
  const StackReport report = ask_for_stacks(folder, rank, wait_s);
  if (report.ranks == 0) return {};
  if (rank < 0 || rank >= report.ranks)
    fail(ErrorKind::usage, "--rank {}: the run has ranks 0 to {}", rank, report.ranks - 1);
  if (report.of_rank.empty())
    fail(ErrorKind::comm, "rank {} did not say within {} s where it is", rank, wait_s);
  const std::string job = read_journal(folder.journal()).legs.back().start->place.job;
  return attach_words(report.of_rank, job, arguments);
}

}  // namespace trireme
