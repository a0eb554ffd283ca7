#include "comm/liveness/activity.hpp"

namespace trireme::comm {

void Activity::set_step(std::int64_t step) {
  const std::lock_guard lock(mutex_);
  now_.step = step;
}

void Activity::set_phase(const char* phase) {
  const std::lock_guard lock(mutex_);
  now_.phase = phase;
}

void Activity::begin(const std::string& group, const char* operation, std::string_view tag,
                     std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  ++now_.operations;
  now_.group = group;
  now_.operation = operation;
  now_.tag = tag;
  now_.sequence = sequence;
  now_.complete = false;
}

void Activity::complete(const std::string& group, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  if (now_.sequence == sequence && now_.group == group) now_.complete = true;
}

void Activity::set_waiting(bool waiting) {
  const std::lock_guard lock(mutex_);
  if (waiting) since_wait_.restart();
  if (now_.waiting && !waiting) waited_s_ += since_wait_.seconds();
  now_.waiting = waiting;
}

double Activity::waited_s() const {
  const std::lock_guard lock(mutex_);
  return waited_s_;
}

void Activity::time_out() {
  const std::lock_guard lock(mutex_);
  now_.timed_out = true;
}

ActivitySnapshot Activity::snapshot() const {
  const std::lock_guard lock(mutex_);
  return now_;
}

}  // namespace trireme::comm
