#include "train/step/step_hash_log.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <sstream>
#include <vector>

#include "core/error.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"

namespace trireme::train {
namespace {

std::string line_of(std::int64_t step, const std::string& hash) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%09lld %s\n", static_cast<long long>(step),
                hash.c_str());
  return text.data();
}

}  // namespace

std::uint64_t step_trace(int rank, std::span<const data::Batch> batches, double loss_sum,
                         double grad_norm, double lr, std::uint64_t weights_hash) {
  std::vector<std::uint64_t> facts{
      static_cast<std::uint64_t>(rank), std::bit_cast<std::uint64_t>(loss_sum),
      std::bit_cast<std::uint64_t>(grad_norm), std::bit_cast<std::uint64_t>(lr), weights_hash};
  for (const data::Batch& batch : batches) {
    for (const std::int64_t sample : batch.sample_indices)
      facts.push_back(static_cast<std::uint64_t>(sample));
  }
  return xxh3_64(std::as_bytes(std::span(facts)));
}

StepHashLog::StepHashLog(std::filesystem::path file, bool writes, WriterThread* files)
    : file_(std::move(file)), writes_(writes), files_(files), value_(Hasher().hex()) {}

void StepHashLog::start(std::int64_t step, const std::string& value) {
  step_ = step;
  const bool is_hash = value.size() == value_.size() &&
                       value.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!value.empty() && !is_hash)
    fail(ErrorKind::data, "the checkpoint's value 'chain' is '{}', expected a hash", value);
  if (!value.empty()) value_ = value;
  if (!writes_) return;
  std::string kept;
  std::int64_t last = 0;
  if (std::filesystem::exists(file_)) {
    std::istringstream lines(read_file(file_));
    std::int64_t logged_step = 0;
    std::string hash;
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      if (!(words >> logged_step >> hash) || hash.size() != value_.size())
        break;  // incomplete line
      if (logged_step > step) {
        before_[logged_step] = hash;
        continue;
      }
      kept += line_of(logged_step, hash);
      last = logged_step;
    }
  }
  // A lost node may not have written its last lines; the checkpoint has the hash of its step.
  if (step > 0 && last != step) kept += line_of(step, value_);
  write_file_atomic(file_, kept);
  fd_ = std::make_shared<Fd>(::open(file_.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!*fd_) fail_to_write("append to", file_, errno);
}

void StepHashLog::append(std::int64_t step, std::uint64_t trace) {
  TRIREME_ASSERT(step == step_ + 1);
  Hasher hasher;
  const std::array<std::uint64_t, 2> link{static_cast<std::uint64_t>(step), trace};
  hasher.update(value_);
  hasher.update(std::as_bytes(std::span(link)));
  value_ = hasher.hex();
  step_ = step;
  if (!writes_) return;
  auto task = [fd = fd_, file = file_, line = line_of(step, value_)] {
    // One write per line, so that a reader never sees an incomplete line.
    errno = ENOSPC;  // the cause of a short write
    if (::write(fd->get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
      fail_to_write("append to", file, errno);
  };
  files_ != nullptr ? files_->post(std::move(task)) : task();
  const auto logged_step = before_.find(step);
  if (logged_step != before_.end() && logged_step->second != value_) {
    log::warn(formatted(
        "step {} is not bit for bit what this run computed before it was interrupted ({}: {} then, {} now)",
        step, file_.filename().string(), logged_step->second, value_));
    before_.clear();
  }
}

}  // namespace trireme::train
