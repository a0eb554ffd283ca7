#include "checkpoint/maintenance/reshard.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "checkpoint/format/cover.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/load/slice_reader.hpp"
#include "checkpoint/save/publish.hpp"
#include "checkpoint/save/shard_file.hpp"
#include "comm/share.hpp"
#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/join.hpp"
#include "core/progress.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::int64_t kMaxRanks = 99'999;  // five digits in a shard's name

void check_num_ranks(std::int64_t num_ranks, std::string_view where) {
  if (num_ranks < 1 || num_ranks > kMaxRanks)
    fail(ErrorKind::usage, "{}{} ranks, must be in [1, {}]", where, num_ranks, kMaxRanks);
}

std::vector<std::int64_t> integers(const Json& item, const char* key, const std::string& where) {
  const auto found = item.find(key);
  if (found == item.end() || !found->is_array())
    fail(ErrorKind::data, "{}: '{}' must be a list of integers", where, key);
  std::vector<std::int64_t> values;
  for (const Json& value : *found) {
    if (!value.is_number_integer() || value < 0 || value > (std::int64_t{1} << 56))
      fail(ErrorKind::data, "{}: '{}' holds {}, must be integers >= 0", where, key, value.dump());
    values.push_back(value.get<std::int64_t>());
  }
  return values;
}

ReshardLayout::RankSlice parse_slice(const Json& item, int num_ranks, const std::string& where) {
  if (!item.is_object()) fail(ErrorKind::data, "{}: a slice must be an object", where);
  const auto rank = json_get<std::int64_t>(item, "rank", where);
  if (rank < 0 || rank >= num_ranks)
    fail(ErrorKind::usage, "{}: rank {}, must be in [0, {}]", where, rank, num_ranks - 1);
  ReshardLayout::RankSlice slice{
      static_cast<int>(rank), {integers(item, "offset", where), integers(item, "extent", where)}};
  slice.part.flat_end = slice.part.rectangle_count();
  if (item.contains("flat")) {
    const std::vector<std::int64_t> flat = integers(item, "flat", where);
    if (flat.size() != 2) fail(ErrorKind::data, "{}: 'flat' must be [begin, end]", where);
    slice.part.flat_begin = flat[0];
    slice.part.flat_end = flat[1];
  }
  return slice;
}

void check_slices(const std::vector<ReshardLayout::RankSlice>& slices,
                  const std::vector<std::int64_t>& shape, const std::string& where) {
  std::vector<parallel::Slice> parts;
  for (const ReshardLayout::RankSlice& slice : slices) {
    const parallel::Slice& part = slice.part;
    const bool good = lies_inside(shape, part) && part.flat_begin < part.flat_end;
    if (!good) fail(ErrorKind::usage, "{}: a slice is empty or lies outside the tensor", where);
    parts.push_back(part);
  }
  const std::string problem = cover_problem(shape, parts);
  if (!problem.empty())
    fail(ErrorKind::usage, "{}: slices must cover the tensor exactly once, but: {}", where,
         problem);
}

/// The slices of one rank, after they were read and checked. Owns their memory.
struct RankSlices {
  std::vector<std::vector<std::byte>> memory;
  std::vector<SliceToWrite> slices;
};

RankSlices read_rank(const Checkpoint& from, const ReshardLayout& layout, int rank) {
  RankSlices mine;
  std::vector<SliceJob> jobs;
  for (const auto& [name, tensor] : from.manifest().tensors) {
    const auto slices = layout.tensors.find(name);
    if (slices == layout.tensors.end()) continue;
    std::vector<ReadTarget> targets;
    for (const ReshardLayout::RankSlice& slice : slices->second) {
      if (slice.rank != rank) continue;
      mine.memory.emplace_back(static_cast<std::size_t>(slice.part.count()) *
                               size_of(tensor.dtype));
      targets.push_back({slice.part, mine.memory.back()});
      mine.slices.push_back({name, tensor.dtype, tensor.shape, slice.part, mine.memory.back()});
    }
    // Also list a tensor without elements, because the manifest must name it.
    if (rank == 0 && tensor.count() == 0)
      mine.slices.push_back(
          {name, tensor.dtype, tensor.shape, parallel::Slice::whole(tensor.shape), {}});
    if (targets.empty()) continue;
    for (const SavedSlice& slice : tensor.slices) jobs.push_back({&name, &tensor, &slice, targets});
  }
  read_slices(from.path(), from.manifest(), std::move(jobs));
  return mine;
}

std::vector<std::uint64_t> bytes_of_ranks(const ReshardLayout& layout,
                                          const CheckpointManifest& manifest) {
  std::vector<std::uint64_t> bytes(static_cast<std::size_t>(layout.num_ranks));
  for (const auto& [name, slices] : layout.tensors) {
    const std::uint64_t element = size_of(manifest.tensors.at(name).dtype);
    for (const ReshardLayout::RankSlice& slice : slices)
      bytes[static_cast<std::size_t>(slice.rank)] +=
          static_cast<std::uint64_t>(slice.part.count()) * element;
  }
  return bytes;
}

/// Writes tensors of `from` in the given layout as the checkpoint `whole`. Collective.
std::filesystem::path write_checkpoint(const Checkpoint& from, const ReshardLayout& layout,
                                       Unpublished whole, comm::Communicator& world) {
  const CheckpointManifest& manifest = from.manifest();
  whole.temporary = whole.directory / (".tmp-" + step_directory_name(whole.step));
  comm::on_first_rank(world, [&] {
    for (const SavedFile& file : manifest.files) whole.files[file.name] = from.file(file.name);
    make_temporary(whole);
  });
  try {
    const std::vector<std::uint64_t> bytes = bytes_of_ranks(layout, manifest);
    const double all_bytes = std::accumulate(bytes.begin(), bytes.end(), 0.0);
    Progress progress("reshard", all_bytes / world.size(), Progress::Unit::bytes);
    const std::vector<std::string> parts =
        comm::distribute_work(world, bytes, [&](std::size_t rank) {
          const RankSlices mine = read_rank(from, layout, static_cast<int>(rank));
          return manifest_part_text(write_shard_file(
              whole.temporary, {whole.run_id, whole.step, static_cast<int>(rank), layout.num_ranks},
              mine.slices, nullptr, &progress));
        });
    return comm::text_of_first_rank(world, [&] {
      std::vector<CheckpointManifest> parsed;
      for (const std::string& part : parts)
        parsed.push_back(parse_manifest_part(part, "a shard's part of the manifest"));
      return publish_checkpoint(whole, parsed).string();
    });
  } catch (...) {
    std::error_code ignored;
    if (world.rank() == 0) std::filesystem::remove_all(whole.temporary, ignored);
    throw;
  }
}

}  // namespace

ReshardLayout spread_layout(const CheckpointManifest& manifest, std::int64_t num_ranks) {
  check_num_ranks(num_ranks, "");
  std::uint64_t total = 0;
  for (const auto& [name, tensor] : manifest.tensors)
    total += static_cast<std::uint64_t>(tensor.count()) * size_of(tensor.dtype);
  const std::uint64_t share =
      (total + static_cast<std::uint64_t>(num_ranks) - 1) / static_cast<std::uint64_t>(num_ranks);
  ReshardLayout layout{static_cast<int>(num_ranks), {}};
  std::uint64_t position = 0;  // counts the elements of all tensors, one after another
  for (const auto& [name, tensor] : manifest.tensors) {
    std::vector<ReshardLayout::RankSlice>& slices = layout.tensors[name];
    const std::uint64_t element = size_of(tensor.dtype);
    const parallel::Slice whole = parallel::Slice::whole(tensor.shape);
    for (std::int64_t begin = 0; begin < whole.count();) {
      const std::uint64_t rank = position / share;
      const std::uint64_t left = (rank + 1) * share - position;
      // If an element lies across the boundary between two ranks, the earlier rank gets it.
      const auto count = std::min(whole.count() - begin,
                                  static_cast<std::int64_t>((left + element - 1) / element));
      parallel::Slice part = whole;
      part.flat_begin = begin;
      part.flat_end = begin + count;
      slices.push_back({static_cast<int>(rank), part});
      begin += count;
      position += static_cast<std::uint64_t>(count) * element;
    }
  }
  return layout;
}

ReshardLayout parse_layout(const std::string& text, const std::string& where,
                           const CheckpointManifest& manifest) {
  const Json root = parse_json(text, where);
  const auto num_ranks = json_get<std::int64_t>(root, "ranks", where);
  check_num_ranks(num_ranks, where + ": ");
  ReshardLayout layout = spread_layout(manifest, num_ranks);
  const auto tensors = root.find("tensors");
  if (tensors == root.end()) return layout;
  if (!tensors->is_object()) fail(ErrorKind::data, "{}: 'tensors' must be an object", where);
  for (const auto& [name, list] : tensors->items()) {
    const std::string place = formatted("{}: {}", where, name);
    const auto saved = manifest.tensors.find(name);
    if (saved == manifest.tensors.end())
      fail(ErrorKind::usage, "{}: the checkpoint holds no such tensor", place);
    if (!list.is_array()) fail(ErrorKind::data, "{}: must be a list of slices", place);
    std::vector<ReshardLayout::RankSlice> slices;
    for (const Json& item : list) slices.push_back(parse_slice(item, layout.num_ranks, place));
    check_slices(slices, saved->second.shape, place);
    layout.tensors[name] = std::move(slices);
  }
  return layout;
}

std::string layout_text(const CheckpointManifest& manifest) {
  const std::string tensors = joined(manifest.tensors, ",", [](const auto& named) {
    Json slices = Json::array();
    for (const SavedSlice& slice : named.second.slices) {
      slices.push_back({{"rank", slice.shard},
                        {"offset", slice.part.offset},
                        {"extent", slice.part.extent},
                        {"flat", {slice.part.flat_begin, slice.part.flat_end}}});
    }
    return formatted("\n{}: {}", Json(named.first).dump(), slices.dump());
  });
  return formatted("{{\"ranks\": {},\n\"tensors\": {{{}}}}}\n", manifest.shards.size(), tensors);
}

std::filesystem::path reshard_checkpoint(const Checkpoint& from, const ReshardLayout& layout,
                                         const std::filesystem::path& directory,
                                         comm::Communicator& world) {
  const CheckpointManifest& manifest = from.manifest();
  return write_checkpoint(
      from, layout, {directory, {}, manifest.run_id, manifest.step, manifest.values, {}}, world);
}

std::filesystem::path publish_weights(const Checkpoint& from,
                                      const std::filesystem::path& directory,
                                      comm::Communicator& world) {
  CheckpointManifest weights = from.manifest();
  std::erase_if(weights.tensors,
                [](const auto& named) { return !named.first.starts_with("param/"); });
  std::erase_if(weights.values, [&](const auto& named) { return !is_model_value(named.first); });
  return write_checkpoint(from, spread_layout(weights, world.size()),
                          {directory, {}, weights.run_id, 0, weights.values, {}}, world);
}

}  // namespace trireme::checkpoint
