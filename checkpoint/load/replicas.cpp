#include "checkpoint/load/replicas.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/join.hpp"

namespace trireme::checkpoint {
namespace {

/// A tensor slice of some rank, identified by numbers that are valid on every rank.
struct HeldSlice {
  int rank = 0;
  std::size_t tensor = 0;  // index in the StateDict of that rank
  parallel::Slice part;
};

using SlicesByName = std::map<std::string, std::vector<HeldSlice>>;  // sorted by rank, then tensor

/// Gathers the tensors of all ranks for which `chosen` is true. Collective.
SlicesByName gather_slices(const CheckpointManifest& manifest, const StateDict& state,
                           comm::Communicator& world,
                           const std::function<bool(const StateTensor&)>& chosen) {
  std::ostringstream mine;
  for (std::size_t i = 0; i < state.tensors.size(); ++i) {
    const StateTensor& tensor = state.tensors[i];
    if (tensor.slice.count() == 0 || !chosen(tensor)) continue;
    mine << world.rank() << ' '
         << std::distance(manifest.tensors.begin(), manifest.tensors.find(tensor.name)) << ' ' << i
         << ' ' << tensor.slice.flat_begin << ' ' << tensor.slice.flat_end;
    for (const auto* places : {&tensor.slice.offset, &tensor.slice.extent})
      for (const std::int64_t place : *places) mine << ' ' << place;
    mine << '\n';
  }
  SlicesByName slices;
  std::istringstream words(
      comm::broadcast_text(world, joined(comm::gather_texts(world, mine.str()), "")));
  std::ptrdiff_t name = 0;
  HeldSlice slice;
  while (words >> slice.rank >> name >> slice.tensor >> slice.part.flat_begin >>
         slice.part.flat_end) {
    const auto saved = std::next(manifest.tensors.begin(), name);
    for (auto* places : {&slice.part.offset, &slice.part.extent}) {
      places->resize(saved->second.shape.size());
      for (std::int64_t& place : *places) words >> place;
    }
    slices[saved->first].push_back(slice);
  }
  return slices;
}

/// Returns true if the runs, in any order, cover all elements [0, count) of their target once.
bool tile(std::vector<parallel::SliceRun> runs, std::int64_t count) {
  std::sort(runs.begin(), runs.end(), [](const parallel::SliceRun& a, const parallel::SliceRun& b) {
    return a.target_index < b.target_index;
  });
  std::int64_t end = 0;
  for (const parallel::SliceRun& run : runs) {
    if (run.target_index != end) return false;
    end += run.count;
  }
  return end == count;
}

struct Source {
  const HeldSlice* offer;
  std::vector<parallel::SliceRun> runs;
};

/// Returns the slices of other ranks that together cover `need`, by rank; empty if they do not.
std::vector<Source> sources_of(const std::vector<std::int64_t>& shape, const HeldSlice& need,
                               const std::vector<HeldSlice>& offers) {
  std::vector<Source> sources;
  std::vector<parallel::SliceRun> all;
  for (const HeldSlice& offer : offers) {
    if (offer.rank == need.rank || !parallel::meet(shape, offer.part, need.part)) continue;
    sources.push_back({&offer, parallel::intersect(shape, offer.part, need.part)});
    all.insert(all.end(), sources.back().runs.begin(), sources.back().runs.end());
  }
  if (!tile(std::move(all), need.part.count())) sources.clear();
  return sources;
}

/// Returns one zeroed message per peer with the size of its transfers.
template <class Transfers, class Size>
std::map<int, std::vector<std::byte>> empty_messages(const Transfers& transfers, const Size& size) {
  std::map<int, std::vector<std::byte>> messages;
  for (const auto& transfer : transfers) {
    std::vector<std::byte>& message = messages[transfer.peer];
    message.resize(message.size() + size(transfer));
  }
  return messages;
}

std::vector<comm::Message> as_request(std::map<int, std::vector<std::byte>>& messages) {
  std::vector<comm::Message> request;
  for (auto& [peer, bytes] : messages) request.push_back({peer, bytes.data(), bytes.size()});
  return request;
}

}  // namespace

Replicas::Replicas(const CheckpointManifest& manifest, StateDict& into, comm::Communicator& world)
    : into_(into), world_(world), received_(into.tensors.size(), false) {
  const SlicesByName needs =
      gather_slices(manifest, into, world, [](const StateTensor& tensor) { return !tensor.owner; });
  if (needs.empty()) return;
  const SlicesByName offers = gather_slices(manifest, into, world, [&](const StateTensor& tensor) {
    return tensor.owner && needs.contains(tensor.name);
  });
  for (const auto& [name, wanted] : needs) {
    const auto held = offers.find(name);
    if (held == offers.end()) continue;
    for (const HeldSlice& need : wanted) {
      const auto concerned = [&](const HeldSlice& offer) { return offer.rank == world.rank(); };
      if (need.rank != world.rank() &&
          std::none_of(held->second.begin(), held->second.end(), concerned))
        continue;
      for (Source& source : sources_of(manifest.tensors.at(name).shape, need, held->second)) {
        if (need.rank == world.rank()) {
          received_[need.tensor] = true;
          receives_.push_back({source.offer->rank, need.tensor, std::move(source.runs)});
        } else if (concerned(*source.offer)) {
          sends_.push_back({need.rank, source.offer->tensor, std::move(source.runs)});
        }
      }
    }
  }
}

StateDict Replicas::to_read() const {
  StateDict result;
  for (std::size_t i = 0; i < into_.tensors.size(); ++i)
    if (!received_[i]) result.tensors.push_back(into_.tensors[i]);
  return result;
}

void Replicas::exchange() {
  const auto size = [&](const Transfer& transfer) {
    std::int64_t elements = 0;
    for (const parallel::SliceRun& run : transfer.runs) elements += run.count;
    return static_cast<std::size_t>(elements) * size_of(into_.tensors[transfer.tensor].dtype);
  };
  // Copies each run between a tensor and the messages.
  const auto move = [&](std::vector<Transfer>& transfers,
                        std::map<int, std::vector<std::byte>>& messages, bool pack) {
    std::map<int, std::size_t> at;
    for (const Transfer& transfer : transfers) {
      const StateTensor& tensor = into_.tensors[transfer.tensor];
      const std::size_t element = size_of(tensor.dtype);
      for (const parallel::SliceRun& run : transfer.runs) {
        const std::size_t bytes = static_cast<std::size_t>(run.count) * element;
        const auto index = static_cast<std::size_t>(pack ? run.source_index : run.target_index);
        std::byte* held = tensor.bytes.data() + index * element;
        std::byte* sent = messages[transfer.peer].data() + at[transfer.peer];
        std::memcpy(pack ? sent : held, pack ? held : sent, bytes);
        at[transfer.peer] += bytes;
      }
    }
  };
  auto sent = empty_messages(sends_, size);
  auto received = empty_messages(receives_, size);
  move(sends_, sent, /*pack=*/true);
  const std::vector<comm::Message> sends = as_request(sent);
  const std::vector<comm::Message> receives = as_request(received);
  world_.exchange({.sends = sends, .receives = receives, .tag = "loaded replicas"})->wait();
  move(receives_, received, /*pack=*/false);
}

}  // namespace trireme::checkpoint
