#include "job/journal.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "core/timer.hpp"
#include "job/journal_lines.hpp"

namespace trireme {
namespace {

constexpr std::size_t kMaxJournalBytes = std::size_t{1} << 30;

/// A process that is ending does not wait for ever for one that is stuck in a write.
constexpr std::chrono::seconds kPatience(3);

}  // namespace

std::int64_t JournalContent::committed() const {
  std::int64_t newest = -1;
  for (const Leg& leg : legs) newest = std::max(newest, leg.committed);
  return newest;
}

std::string JournalContent::run_id() const {
  if (legs.empty()) return "";
  const Leg& first = legs.front();
  const bool has_host = first.start && !first.start->nodes.empty();
  return xxh3_128_hex(formatted("{} {} {}", number_text(first.began_at), first.place().job,
                                has_host ? first.start->nodes.front() : ""));
}

JournalContent read_journal(const std::filesystem::path& file) {
  JournalContent content;
  std::error_code absent;
  if (!std::filesystem::exists(file, absent)) return content;
  const std::string text = read_file(file, kMaxJournalBytes);
  content.bytes = text.size();
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) break;
    if (!take_line(std::string_view(text).substr(begin, end - begin), content)) break;
    begin = end + 1;
    content.valid_bytes = begin;
  }
  return content;
}

void Journal::open(std::function<bool()> may_write) {
  open_newest_leg(std::move(may_write));
  begin_leg();
}

void Journal::open_newest_leg(std::function<bool()> may_write) {
  may_write_ = std::move(may_write);
  legs_ = recover().legs;
  leg_ = legs_.empty() ? 1 : legs_.back().number;
  open_ = true;
}

JournalContent Journal::recover() {
  JournalContent content = read_journal(file_);
  if (content.bytes > content.valid_bytes) {
    log::warn(formatted("{}: the last {} of {} bytes are no whole lines and are cut off",
                        file_.string(), content.bytes - content.valid_bytes, content.bytes));
  }
  fd_ = Fd(::open(file_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd_) fail_to_write("open", file_, errno);
  if (content.bytes > content.valid_bytes &&
      ::ftruncate(fd_.get(), static_cast<off_t>(content.valid_bytes)) != 0)
    fail_to_write("cut", file_, errno);
  seq_ = content.lines;
  torn_ = false;
  return content;
}

void Journal::write_whole(const std::string& line) {
  torn_ = true;
  for (std::size_t done = 0; done < line.size();) {
    const ssize_t wrote = ::write(fd_.get(), line.data() + done, line.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail_to_write("write", file_, errno);
    done += static_cast<std::size_t>(wrote);
  }
  torn_ = false;
}

void Journal::append(const char* event, std::int64_t leg, const Json& members) {
  if (!open_) return;
  // Until a time of the wall clock: ThreadSanitizer of GCC 12 does not know the call that a duration takes.
  const std::unique_lock lock(mutex_, std::chrono::system_clock::now() + kPatience);
  if (!lock.owns_lock() || !may_write_()) return;
  if (torn_) recover();
  Json line{{"seq", seq_ + 1}, {"time", unix_time_s()}, {"leg", leg}, {"event", event}};
  line.update(members);
  write_whole(json_line(line));
  ++seq_;
  if (::fdatasync(fd_.get()) != 0) fail_to_write("fsync", file_, errno);
}

void Journal::start(const LegStart& start) {
  Json members;
  put_start(members, start);
  append("start", leg_, members);
}

void Journal::ready(const LegReady& ready) {
  append("ready", leg_, {{"step", ready.step}, {"start_s", ready.start_s}});
}

void Journal::commit(std::int64_t step) {
  append("commit", leg_, {{"step", step}});
}

void Journal::request(const LegRequest& request) {
  append("request", leg_, {{"want", request.want}, {"by", request.by}, {"step", request.step}});
}

void Journal::verdict(const Verdict& verdict, std::int64_t leg) {
  Json members;
  put_verdict(members, verdict);
  append("verdict", leg, members);
}

void Journal::end(const LegEnd& end) {
  append("end", leg_, {{"state", end.state}, {"exit_code", end.exit_code}, {"step", end.step}});
}

void Journal::decision(const Decision& decision, const JobPlace& place) {
  Json members;
  put_decision(members, decision);
  put_place(members, place);
  append("decision", leg_, members);
}

}  // namespace trireme
