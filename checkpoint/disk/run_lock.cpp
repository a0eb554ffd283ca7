#include "checkpoint/disk/run_lock.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <vector>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/files/refusal.hpp"
#include "core/log.hpp"
#include "core/process/failpoints.hpp"

namespace trireme::checkpoint {
namespace {

namespace fs = std::filesystem;

struct Holder {
  std::string host, boot_id, pid_space, start_time, job_id, nonce;
  std::int64_t pid = 0;
  std::uint64_t order = 0;
  std::uint64_t counter = 0;

  [[nodiscard]] bool is_fenced_by(const Holder& other) const {
    return !job_id.empty() && job_id == other.job_id && order < other.order;
  }

  [[nodiscard]] std::string words() const {
    return formatted("process {} on host {}{}", pid, host,
                     job_id.empty() ? "" : formatted(", job {}", job_id));
  }
};

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// Returns the clock ticks after boot at which the process began, to detect a reused pid. Returns
/// "" if the process is gone or a zombie.
std::string process_start(std::int64_t pid) {
  const std::string line = first_line(formatted("/proc/{}/stat", pid));
  const std::size_t name_end = line.rfind(')');  // the name may hold spaces
  if (name_end == std::string::npos) return "";
  std::istringstream rest(line.substr(name_end + 1));
  std::string word;
  rest >> word;  // field 3: state
  if (word == "Z" || word == "X") return "";
  for (int field = 4; field <= 22; ++field) rest >> word;  // field 22: starttime
  return word;
}

std::string pid_space() {
  std::error_code code;
  return fs::read_symlink("/proc/self/ns/pid", code).string();
}

std::string host_name() {
  char name[256] = {};
  ::gethostname(name, sizeof name - 1);
  return name;
}

Holder myself(const RunLockOptions& options) {
  std::random_device random;
  char nonce[40];
  std::snprintf(nonce, sizeof nonce, "%08x%08x%08x%08x", random(), random(), random(), random());
  Holder me{host_name(),
            first_line("/proc/sys/kernel/random/boot_id"),
            pid_space(),
            "",
            options.job_id,
            nonce,
            ::getpid(),
            options.order,
            0};
  me.start_time = process_start(me.pid);
  return me;
}

/// Returns a record of fixed length, so that one write of a heartbeat overwrites it in place.
std::string record(const std::string& owner, std::uint64_t counter) {
  char digits[32];
  std::snprintf(digits, sizeof digits, "%020llu", static_cast<unsigned long long>(counter));
  return formatted("{{\"counter\": \"{}\", {}}}\n", digits, owner);
}

std::string owner_text(const Holder& me) {
  const std::string object = Json{
      {"host", me.host},
      {"pid", me.pid},
      {"job_id", me.job_id},
      {"order", me.order},
      {"boot_id", me.boot_id},
      {"pid_space", me.pid_space},
      {"start_time", me.start_time},
      {"nonce", me.nonce}}.dump();
  return object.substr(1, object.size() - 2);
}

/// Returns nullopt if the file is gone.
std::optional<Holder> read_holder(const fs::path& path) {
  std::string text;
  // If the file is missing and then exists again, another process is taking it over: try again.
  constexpr int kTries = 20;
  for (int tries = 1; const auto error = comm::capture([&] { text = read_file(path, 1 << 16); });
       ++tries) {
    if (error->kind() == ErrorKind::data && !fs::exists(fs::symlink_status(path)))
      return std::nullopt;
    if (error->kind() != ErrorKind::data || tries == kTries)
      throw Error(error->kind(), error->what());
  }
  const std::string where = path.string();
  if (text.find("\"nonce\"") == std::string::npos) {
    fail(ErrorKind::data, "{} is not a lock of Trireme; delete it if no job works in the directory",
         where);
  }
  const Json json = parse_json(text, where);
  Holder holder;
  holder.host = json_get<std::string>(json, "host", where);
  holder.pid = json_get<std::int64_t>(json, "pid", where);
  holder.job_id = json_get<std::string>(json, "job_id", where);
  // Absent in locks of version 0.1.
  if (json.contains("order")) holder.order = json_get<std::uint64_t>(json, "order", where);
  holder.boot_id = json_get<std::string>(json, "boot_id", where);
  holder.pid_space = json_get<std::string>(json, "pid_space", where);
  holder.start_time = json_get<std::string>(json, "start_time", where);
  holder.nonce = json_get<std::string>(json, "nonce", where);
  holder.counter =
      std::strtoull(json_get<std::string>(json, "counter", where).c_str(), nullptr, 10);
  if (holder.nonce.find('/') != std::string::npos)
    fail(ErrorKind::data, "{} is not a lock of Trireme", where);
  return holder;
}

/// Returns true if the counter of a holder on another host changes within takeover_s.
bool counter_moves(const fs::path& path, const Holder& holder, double takeover_s) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(takeover_s);
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const auto now = read_holder(path);
    if (!now || now->nonce != holder.nonce || now->counter != holder.counter) return true;
  }
  return false;
}

bool is_alive(const fs::path& path, const Holder& holder, const Holder& me, double takeover_s) {
  if (holder.host == me.host && holder.boot_id != me.boot_id)
    return false;  // this host has rebooted since
  if (holder.host == me.host && holder.pid_space == me.pid_space) {
    const bool exists = ::kill(static_cast<pid_t>(holder.pid), 0) == 0 || errno == EPERM;
    return exists && process_start(holder.pid) == holder.start_time;
  }
  return counter_moves(path, holder, takeover_s);
}

/// Returns the path of a takeover claim. The process that creates the file named by the nonce of a
/// dead holder may replace the lock.
fs::path successor_path(const fs::path& lock, const std::string& nonce) {
  return formatted("{}.after-{}", lock.string(), nonce);
}

bool try_link(const fs::path& from, const fs::path& to) {
  if (::link(from.c_str(), to.c_str()) == 0) return true;
  if (errno == EEXIST) return false;
  fail_to_write("create", to, errno);
}

[[noreturn]] void refuse(const fs::path& lock, const Holder& holder) {
  fail(ErrorKind::usage,
       "run directory {} is in use by {}; wait for it, stop it, or choose another --run",
       lock.parent_path().string(), holder.words());
}

/// Makes `mine`, a complete record under a private name, the lock. Returns when that has succeeded.
void take(const fs::path& lock, const fs::path& mine, const Holder& me, double takeover_s) {
  while (true) {
    if (try_link(mine, lock)) return;
    std::vector<fs::path> chain;  // unfinished takeovers of processes that died
    fs::path seat = lock;
    std::optional<Holder> holder = read_holder(seat);
    while (holder) {
      if (!holder->is_fenced_by(me) && is_alive(seat, *holder, me, takeover_s)) {
        const auto now = read_holder(lock);
        if (now) refuse(lock, seat == lock ? *now : *holder);
        break;
      }
      seat = successor_path(lock, holder->nonce);
      chain.push_back(seat);
      failpoint("run_lock.claim");
      if (try_link(mine, seat)) break;
      holder = read_holder(seat);
    }
    if (!holder || chain.empty()) continue;  // the lock changed meanwhile: read it again
    // This process owns the claim. If the lock has changed hands meanwhile, the claim is for an old
    // holder and is removed.
    const auto now = read_holder(lock);
    const bool current = now && successor_path(lock, now->nonce) == chain.front();
    if (!current) {
      fs::remove(seat);
      continue;
    }
    log::warn(formatted("taking over {} from {}, which is {}", lock.string(), now->words(),
                        now->is_fenced_by(me) ? "an earlier attempt of this job" : "dead"));
    failpoint("run_lock.takeover");
    if (std::rename(seat.c_str(), lock.c_str()) != 0) fail_to_write("replace", lock, errno);
    chain.pop_back();
    for (const fs::path& begun : chain) fs::remove(begun);
    return;
  }
}

}  // namespace

RunLock::RunLock(const std::filesystem::path& run_folder, const RunLockOptions& options)
    : path_(run_folder / "LOCK") {
  const Holder me = myself(options);
  owner_ = owner_text(me);
  nonce_ = me.nonce;
  make_directories(run_folder);
  const fs::path mine = formatted("{}.{}", path_.string(), nonce_);
  Fd fd(::open(mine.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!fd) fail_to_write("create", mine, errno);
  const auto error = comm::capture([&] {
    const std::string text = record(owner_, counter_);
    write_all(fd.get(), std::as_bytes(std::span(text)), 0, mine);
    sync_file(fd.get(), mine);
    take(path_, mine, me, options.takeover_s);
  });
  std::error_code ignored;
  fs::remove(mine, ignored);
  if (error) throw Error(error->kind(), error->what());
  fd_ = fd.release();
  thread_ = std::thread([this, period = options.heartbeat_s] { beat(period); });
}

RunLock::~RunLock() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  thread_.join();
  ::close(fd_);
  (void)comm::capture([&] {
    const auto holder = read_holder(path_);
    std::error_code ignored;
    if (holder && holder->nonce == nonce_) fs::remove(path_, ignored);
  });
}

void RunLock::check() const {
  if (lost_)
    fail(ErrorKind::usage,
         "the lock {} is gone or belongs to another process: this process writes nothing more",
         path_.string());
}

void RunLock::confirm() {
  (void)is_held();
  check();
}

bool RunLock::is_held() {
  (void)comm::capture([&] { look(); });  // an unreadable file does not change the answer
  return !lost_;
}

void RunLock::look() {
  const auto holder = read_holder(path_);
  if (!holder || holder->nonce != nonce_) lost_ = true;
}

void RunLock::beat(double period_s) {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::duration<double>(period_s), [this] { return stop_; })) {
    // A full disk must not end the lease. An overwrite in place needs no space, and the next
    // heartbeat tries again.
    (void)comm::capture([&] {
      const std::string text = record(owner_, ++counter_);
      write_all(fd_, std::as_bytes(std::span(text)), 0, path_);
      (void)::fdatasync(fd_);
      look();
    });
  }
}

}  // namespace trireme::checkpoint
