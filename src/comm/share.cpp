#include "comm/share.hpp"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <optional>

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"

namespace trireme::comm {
namespace {

/// The outcome of one item, sent as "CODE LENGTH\nTEXT". The code is 0 after success and 1 + error
/// kind after an error.
struct ItemOutcome {
  std::optional<ErrorKind> failed;
  std::string text;  // the result or the error message
};

ItemOutcome outcome_of(const std::function<std::string()>& work) {
  ItemOutcome outcome;
  const auto error = capture([&] { outcome.text = work(); });
  if (error) outcome = {error->kind(), error->what()};
  return outcome;
}

void append(std::string& record, const ItemOutcome& outcome) {
  const int code = outcome.failed ? 1 + static_cast<int>(*outcome.failed) : 0;
  record += formatted("{} {}\n", code, outcome.text.size());
  record += outcome.text;
}

ItemOutcome take(const std::string& record, std::size_t& at) {
  char* end = nullptr;
  const auto code = std::strtol(record.c_str() + at, &end, 10);
  const auto length = static_cast<std::size_t>(std::strtoull(end, &end, 10));
  const auto begin = static_cast<std::size_t>(end + 1 - record.c_str());
  at = begin + length;
  ItemOutcome outcome{std::nullopt, record.substr(begin, length)};
  if (code != 0) outcome.failed = static_cast<ErrorKind>(code - 1);
  return outcome;
}

/// Collective. Returns the records of all ranks on every rank. Empty records are not sent.
std::vector<std::string> share_records(Communicator& world, const std::string& mine) {
  const auto sizes = all_gather_value<std::uint64_t>(world, mine.size(), "record sizes");
  std::vector<std::string> records;
  for (int rank = 0; rank < world.size(); ++rank) {
    std::string& record = records.emplace_back(mine);
    record.resize(sizes[static_cast<std::size_t>(rank)]);
    if (record.empty()) continue;
    world
        .broadcast({.data = record.data(),
                    .count = record.size(),
                    .dtype = DType::u8,
                    .root = rank,
                    .tag = "records"})
        ->wait();
  }
  return records;
}

[[noreturn]] void fail_item(const ItemOutcome& outcome, int rank, int size) {
  const bool same_anywhere =
      *outcome.failed == ErrorKind::usage || *outcome.failed == ErrorKind::data;
  if (same_anywhere || size == 1) throw Error(*outcome.failed, outcome.text);
  fail(*outcome.failed, "rank {}: {}", rank, outcome.text);
}

}  // namespace

std::vector<int> owners_by_bytes(std::span<const std::uint64_t> bytes, int ranks) {
  std::vector<std::size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return bytes[a] > bytes[b]; });
  std::vector<std::uint64_t> loads(static_cast<std::size_t>(ranks));
  std::vector<int> owners(bytes.size());
  for (const std::size_t item : order) {
    const auto least = std::min_element(loads.begin(), loads.end());
    owners[item] = static_cast<int>(std::distance(loads.begin(), least));
    *least += bytes[item] + 1;  // + 1 also distributes items of 0 bytes evenly
  }
  return owners;
}

std::vector<std::string> distribute_work(Communicator& world, std::span<const std::uint64_t> bytes,
                                         const std::function<std::string(std::size_t)>& work) {
  const std::vector<int> owners = owners_by_bytes(bytes, world.size());
  std::string mine;
  bool failed = false;
  for (std::size_t item = 0; item < bytes.size() && !failed; ++item) {
    if (owners[item] != world.rank()) continue;
    const ItemOutcome outcome = outcome_of([&] { return work(item); });
    failed = outcome.failed.has_value();
    append(mine, outcome);
  }
  const std::vector<std::string> records = share_records(world, mine);
  std::vector<std::size_t> positions(records.size());
  std::vector<std::string> texts;
  for (const int owner : owners) {
    const auto rank = static_cast<std::size_t>(owner);
    ItemOutcome outcome = take(records[rank], positions[rank]);
    if (outcome.failed) fail_item(outcome, owner, world.size());
    texts.push_back(std::move(outcome.text));
  }
  return texts;
}

std::string text_of_first_rank(Communicator& world, const std::function<std::string()>& work) {
  ItemOutcome outcome;
  if (world.rank() == 0) outcome = outcome_of(work);
  std::string record;
  append(record, outcome);
  record = broadcast_text(world, record);
  std::size_t at = 0;
  outcome = take(record, at);
  if (outcome.failed) throw Error(*outcome.failed, outcome.text);
  return outcome.text;
}

void on_first_rank(Communicator& world, const std::function<void()>& work) {
  text_of_first_rank(world, [&] {
    work();
    return std::string();
  });
}

void on_first_rank_then_others(Communicator& world, const std::function<void()>& work) {
  on_first_rank(world, work);
  agree(world, capture([&] {
          if (world.rank() > 0) work();
        }));
}

}  // namespace trireme::comm
