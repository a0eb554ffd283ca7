#pragma once
#include <string>

/// Logging without waiting for the terminal or the log file, for the training loop.
namespace trireme::log {

/// While an object lives, a thread of its own writes the log lines of this process, so that a
/// frozen file system does not delay the callers. If more than WriterThread::kMaxTasks lines wait,
/// lines below `warn` are dropped, and one warning gives their number. Objects may be nested: the
/// last destructor writes the remaining lines. Do not fork while an object lives.
class Background {
 public:
  Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background();
};

/// Writes text to standard error without change, in order with the log lines: a redrawn line.
void write_raw(std::string text);

}  // namespace trireme::log
