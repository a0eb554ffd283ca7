#include "parallel/units/in_flight.hpp"

#include <utility>

namespace trireme {

void InFlight::begin() {
  items_.clear();  // abandoned work is left; each destructor waits
  none_left_ = true;
  times_ = {};
  timer_.restart();
}

void InFlight::add(WorkPtr work, std::function<void()> then) {
  const double now = timer_.seconds();
  if (std::exchange(none_left_, false)) times_.first_launch_s = now;
  if (items_.empty()) busy_since_s_ = now;
  items_.push_back({std::move(work), std::move(then)});
}

void InFlight::retire_oldest() {
  Item item = std::move(items_.front());
  items_.pop_front();
  item.work.reset();
  item.then();
  if (items_.empty()) times_.comm_s += timer_.seconds() - busy_since_s_;
}

void InFlight::poll() {
  while (!items_.empty() && items_.front().work->poll()) retire_oldest();
}

void InFlight::wait_for_all_but(std::size_t count) {
  while (items_.size() > count) {
    items_.front().work->wait();
    retire_oldest();
  }
}

void InFlight::finish() {
  const double start = timer_.seconds();
  wait_for_all_but(0);
  times_.exposed_s = timer_.seconds() - start;
}

}  // namespace trireme
