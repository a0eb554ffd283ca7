#include "core/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/background_log.hpp"
#include "core/error.hpp"
#include "core/escape.hpp"
#include "core/writer_thread.hpp"

namespace trireme::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  constexpr std::array kMap{spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                            spdlog::level::err, spdlog::level::off};
  return kMap[static_cast<std::size_t>(level)];
}

std::shared_ptr<spdlog::logger> make_logger(const Config& config) {
  auto screen = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  screen->set_level(config.rank == 0 ? to_spdlog(config.level)
                                     : std::max(spdlog::level::warn, to_spdlog(config.level)));
  std::vector<spdlog::sink_ptr> sinks{screen};
  if (!config.file.empty()) {
    sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(config.file));
    sinks.back()->set_level(to_spdlog(config.level));
  }
  auto logger = std::make_shared<spdlog::logger>("trireme", sinks.begin(), sinks.end());
  logger->set_level(to_spdlog(config.level));
  logger->set_pattern(config.size > 1
                          ? formatted("%Y-%m-%d %H:%M:%S.%e %^%-5l%$ [rank {}] %v", config.rank)
                          : "%Y-%m-%d %H:%M:%S.%e %^%-5l%$ %v");
  logger->flush_on(spdlog::level::warn);
  return logger;
}

/// Returns the current logger; `next` replaces it first.
std::shared_ptr<spdlog::logger> logger(std::shared_ptr<spdlog::logger> next = nullptr) {
  static std::mutex mutex;
  static std::shared_ptr<spdlog::logger> instance = make_logger({});
  const std::lock_guard lock(mutex);
  if (next) instance = std::move(next);
  return instance;
}

constexpr double kFlush_s = 5;  // longest time that flush() waits for a frozen file system

/// The thread that writes the lines; none if the callers write them.
struct Writer {
  std::mutex mutex;
  int num_users = 0;
  std::shared_ptr<WriterThread> thread;
};

Writer& writer() {
  static auto* const writer = new Writer;  // never destroyed: lines may come during the exit
  return *writer;
}

std::shared_ptr<WriterThread> writer_thread() {
  Writer& all = writer();
  const std::lock_guard lock(all.mutex);
  return all.thread;
}

void warn_of_dropped(WriterThread& thread) {
  const std::size_t dropped = thread.take_num_dropped();
  if (dropped == 0) return;
  logger()->warn(formatted(
      "{} log lines were dropped, because the log could not be written for some time", dropped));
}

void write(spdlog::level::level_enum level, std::string_view message) {
  std::string text = escape_controls(message);
  const auto thread = writer_thread();
  if (!thread) {
    logger()->log(level, text);
    return;
  }
  WriterThread* const own = thread.get();  // the thread outlives its tasks
  auto task = [own, level, text = std::move(text), now = spdlog::log_clock::now()] {
    warn_of_dropped(*own);
    logger()->log(now, spdlog::source_loc{}, level, text);
  };
  level >= spdlog::level::warn ? thread->post_urgent(std::move(task))
                               : thread->post_inexact(std::move(task));
}

}  // namespace

Background::Background() {
  Writer& all = writer();
  const std::lock_guard lock(all.mutex);
  if (all.num_users++ == 0) all.thread = std::make_shared<WriterThread>();
}

Background::~Background() {
  std::shared_ptr<WriterThread> last;
  {
    Writer& all = writer();
    const std::lock_guard lock(all.mutex);
    if (--all.num_users == 0) last = std::exchange(all.thread, nullptr);
  }
  if (last) last->drain_for(WriterThread::kLast_s);
}

void write_raw(std::string text) {
  auto task = [text = std::move(text)] {
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
  };
  const auto thread = writer_thread();
  thread ? thread->post_inexact(std::move(task)) : task();
}

void init(const Config& config) {
  try {
    logger(make_logger(config));
  } catch (const spdlog::spdlog_ex& error) {
    fail(ErrorKind::resource, "cannot log to {}: {}", config.file, error.what());
  }
}

void debug(std::string_view message) {
  write(spdlog::level::debug, message);
}

void info(std::string_view message) {
  write(spdlog::level::info, message);
}

void warn(std::string_view message) {
  write(spdlog::level::warn, message);
}

void error(std::string_view message) {
  write(spdlog::level::err, message);
}

void flush() {
  const auto thread = writer_thread();
  if (thread) thread->post_inexact([] { logger()->flush(); });
  WriterThread::drain_all(kFlush_s);  // a frozen file system must not block an exit
  if (!thread) logger()->flush();
}

}  // namespace trireme::log
