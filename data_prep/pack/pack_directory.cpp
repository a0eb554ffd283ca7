#include "data_prep/pack/pack_directory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <utility>

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/files/directories.hpp"
#include "core/files/json.hpp"
#include "core/files/refusal.hpp"
#include "core/log.hpp"
#include "data/shards/schema.hpp"
#include "data/shards/shard_reader.hpp"
#include "data_prep/stop_signals.hpp"
#include "text/chat/jinja_chat.hpp"

namespace trireme::data_prep {
namespace {

constexpr std::string_view kMarkerPrefix = ".tmp.unit-";
constexpr std::string_view kPartPrefix = ".tmp.part-";

/// Returns the name of a chat template for messages: "custom-0123456789ab".
std::string shown_template(const std::string& jinja) {
  return jinja.empty() ? "none" : text::custom_template_name(jinja);
}

/// Throws Error(usage) if the tokenizer of an existing set in `directory` has other files.
void check_tokenizer_files(const std::filesystem::path& directory,
                           const std::map<std::string, std::string>& files) {
  constexpr const char* kTemplateFile = "chat_template.jinja";
  const auto content_of = [&](const std::string& name) {
    return std::filesystem::exists(directory / name) ? read_file(directory / name) : std::string();
  };
  for (const auto& [name, content] : files) {
    if (name != kTemplateFile && content_of(name) != content)
      fail(ErrorKind::usage, "{} contains another tokenizer; use another --output",
           directory.string());
  }
  const auto given = files.find(kTemplateFile);
  const std::string here = given == files.end() ? "" : given->second;
  const std::string there = content_of(kTemplateFile);
  if (here == there) return;
  fail(
      ErrorKind::usage,
      "{} has the chat template {}, but this command has {} (--template-file, or the file of --tokenizer). Give the template of the data set, or another --output",
      (directory / kTemplateFile).string(), shown_template(there), shown_template(here));
}

}  // namespace

MarkerFile::MarkerFile(std::filesystem::path path, bool lock) : path_(std::move(path)) {
  fd_ = Fd(::open(path_.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!fd_) fail_to_write("create", path_, errno);
  if (lock && ::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail(ErrorKind::usage, "another pack makes this part ({}); wait for it", path_.string());
}

MarkerFile::~MarkerFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

std::size_t PackDirectory::prepare(const text::Tokenizer* tokenizer, comm::Communicator& world) {
  std::size_t interrupted = 0;
  comm::all_or_none(world, [&] {
    if (world.rank() != 0) return;
    make_and_lock();
    interrupted = clean_and_check();
    if (tokenizer != nullptr) place_tokenizer(*tokenizer);
  });
  // Any rank may have to remove the directory or the tokenizer.
  is_new_ = comm::broadcast_value<std::uint64_t>(world, is_new_ ? 1 : 0, 0, "new directory") != 0;
  has_placed_tokenizer_ = comm::broadcast_value<std::uint64_t>(world, has_placed_tokenizer_ ? 1 : 0,
                                                               0, "tokenizer") != 0;
  return interrupted;
}

void PackDirectory::make_and_lock() {
  std::error_code ignored;
  is_new_ = !std::filesystem::exists(path_, ignored);
  make_directories(path_);
  std::optional<Fd> lock = lock_directory(path_, /*shared=*/!part_.is_whole());
  if (::access(path_.c_str(), W_OK | X_OK) != 0) fail_to_write("write to", path_, errno);
  if (!lock) {
    fail(ErrorKind::usage, "another pack is writing to {}; wait for it, or use another --output",
         path_.string());
  }
  lock_ = std::move(*lock);
  if (!part_.is_whole()) part_lock_.emplace(path_ / cat(kPartPrefix, part_.index + 1), true);
}

void PackDirectory::remove_without_shards() const {
  std::error_code ignored;
  if (std::filesystem::exists(path_ / data::schema::kManifest, ignored)) return;
  if (missing(all_shards(num_shards_)).size() != num_shards_) return;
  if (has_placed_tokenizer_)
    std::filesystem::remove_all(path_ / data::schema::kTokenizerDirectory, ignored);
  if (!is_new_) return;
  for (const std::size_t shard : shards_)  // markers of ranks that this failure ends
    std::filesystem::remove(path_ / cat(kMarkerPrefix, shard), ignored);
  std::filesystem::remove(path_, ignored);  // fails if the directory is not empty
}

std::size_t PackDirectory::clean_and_check() const {
  std::set<std::string> known{std::string(data::schema::kManifest),
                              std::string(data::schema::kTokenizerDirectory)};
  for (std::size_t i = 0; i < num_shards_; ++i) known.insert(data::schema::shard_name(i));
  std::vector<std::filesystem::path> leftovers;
  std::size_t interrupted = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    const std::string name = entry.path().filename().string();
    const bool temporary =
        name.starts_with(data::schema::kTemporaryPrefix) || name.starts_with("manifest.json.tmp.");
    if (temporary) {
      if (is_of_others(name)) continue;
      leftovers.push_back(entry.path());
      if (name.starts_with(kMarkerPrefix)) ++interrupted;
    } else if (!known.contains(name)) {
      fail(ErrorKind::usage,
           "{} contains '{}', which does not belong to this pack; use another --output",
           path_.string(), name);
    }
  }
  for (const std::filesystem::path& leftover : leftovers) remove_tree(leftover);
  return interrupted;
}

bool PackDirectory::is_of_others(const std::string& temporary) const {
  if (part_.is_whole()) return false;
  return std::ranges::none_of(shards_, [&](std::size_t shard) {
    return temporary == cat(kMarkerPrefix, shard) ||
           temporary.starts_with(
               cat(data::schema::kTemporaryPrefix, data::schema::shard_name(shard), "."));
  });
}

std::size_t PackDirectory::missing_of_others() const {
  if (part_.is_whole()) return 0;
  check_shards(all_shards(num_shards_), 0, 1);
  return missing(all_shards(num_shards_)).size();
}

MarkerFile PackDirectory::mark(std::size_t shard) const {
  return MarkerFile(path_ / cat(kMarkerPrefix, shard));
}

void PackDirectory::place_tokenizer(const text::Tokenizer& tokenizer) {
  const std::filesystem::path target = path_ / data::schema::kTokenizerDirectory;
  if (std::filesystem::exists(target)) return check_tokenizer_files(target, tokenizer.files());
  const std::filesystem::path temporary =
      path_ /
      cat(data::schema::kTemporaryPrefix, data::schema::kTokenizerDirectory, part_.index + 1);
  if (const auto error = comm::capture([&] {
        make_directories(temporary);
        for (const auto& [name, content] : tokenizer.files())
          write_file_atomic(temporary / name, content);
      })) {
    (void)comm::capture([&] { remove_tree(temporary); });
    throw Error(*error);
  }
  const auto refusal = comm::capture([&] { trireme::publish(temporary, target); });
  has_placed_tokenizer_ = !refusal;
  if (!refusal) return;
  if (part_.is_whole() || !std::filesystem::exists(target)) throw Error(*refusal);
  remove_tree(temporary);  // another part was faster
  check_tokenizer_files(target, tokenizer.files());
}

PackDirectoryState PackDirectory::look(comm::Communicator& world) const {
  PackDirectoryState state;
  std::uint64_t finished = 0;
  comm::all_or_none(world, [&] { finished = world.rank() == 0 && is_finished() ? 1 : 0; });
  finished = comm::broadcast_value(world, finished, 0, "finished");
  comm::all_or_none(world, [&] { check_shards(shards_, world.rank(), world.size()); });
  const std::string seen = world.rank() == 0 ? Json(missing(shards_)).dump() : "";
  state.missing = parse_json(comm::broadcast_text(world, seen), "missing shards")
                      .get<std::vector<std::size_t>>();
  state.is_finished = finished != 0 && state.missing.empty();
  std::ranges::set_difference(shards_, state.missing, std::back_inserter(state.kept));
  return state;
}

std::uint64_t PackDirectory::compare(const std::vector<std::size_t>& shards,
                                     const std::function<std::string(std::size_t)>& hash,
                                     const std::function<std::string(std::size_t)>& place) const {
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const std::size_t shard = shards[i];
    if (num_stop_signals() != 0) return shards.size() - i;
    const std::filesystem::path path = path_ / data::schema::shard_name(shard);
    const std::string made_of = data::TokenShard::open(path).meta().input_xxh3;
    std::string now;
    try {
      now = hash(shard);
    } catch (const PartitionDropped&) {
      return shards.size() - i;
    }
    if (now == made_of) continue;
    fail(
        ErrorKind::usage,
        "{} has changed since {} was made from it: the hash of its bytes is {}, was {}; use another --output, or delete the directory",
        place(shard), path.string(), now, made_of);
  }
  return 0;
}

data::Manifest PackDirectory::read_manifest() const {
  const std::filesystem::path path = path_ / data::schema::kManifest;
  return data::Manifest::from_text(read_file(path), path);
}

bool PackDirectory::is_finished() const {
  if (!std::filesystem::exists(path_ / data::schema::kManifest)) return false;
  const data::Manifest manifest = read_manifest();
  if (manifest.identity != asked_.identity) {
    fail(ErrorKind::usage, "{} contains a different set: {}; use another --output", path_.string(),
         describe_difference(manifest, asked_));
  }
  const std::vector<std::size_t> lost = missing(all_shards(num_shards_));
  for (const std::size_t shard : lost) {
    log::warn(formatted("{} is missing and is made again",
                        (path_ / data::schema::shard_name(shard)).string()));
  }
  return lost.empty();
}

void PackDirectory::check_shards(const std::vector<std::size_t>& shards, int rank, int size) const {
  for (auto i = static_cast<std::size_t>(rank); i < shards.size();
       i += static_cast<std::size_t>(size)) {
    const std::filesystem::path path = path_ / data::schema::shard_name(shards[i]);
    if (!std::filesystem::exists(path)) continue;
    data::ShardMeta meta;
    try {
      const data::TokenShard shard = data::TokenShard::open(path);
      shard.verify_tokens();
      meta = shard.meta();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::data) throw;
      log::warn(formatted("{}; it is made again", error.what()));
      remove_tree(path);
      continue;
    }
    if (meta.identity != asked_.identity) {
      fail(ErrorKind::usage,
           "{} belongs to a different set{}; use another --output, or delete the directory",
           path.string(), describe_difference(meta, asked_, num_shards_));
    }
  }
}

std::vector<std::size_t> PackDirectory::missing(const std::vector<std::size_t>& shards) const {
  std::vector<std::size_t> without_file;
  std::ranges::copy_if(shards, std::back_inserter(without_file), [&](std::size_t shard) {
    std::error_code ignored;
    return !std::filesystem::exists(path_ / data::schema::shard_name(shard), ignored);
  });
  return without_file;
}

std::vector<std::size_t> all_shards(std::size_t num_shards) {
  std::vector<std::size_t> shards(num_shards);
  std::iota(shards.begin(), shards.end(), std::size_t{0});
  return shards;
}

}  // namespace trireme::data_prep
