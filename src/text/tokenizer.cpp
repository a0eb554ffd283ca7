#include "text/tokenizer.hpp"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/json.hpp"
#include "text/added_tokens.hpp"
#include "text/bpe_model.hpp"
#include "text/byte_level.hpp"
#include "text/gpt2_split.hpp"
#include "text/tokenizer_spec.hpp"
#include "text/utf8.hpp"
#include "text/word_cache.hpp"

namespace trireme {
namespace {

constexpr const char* kModelFile = "tokenizer.json";
constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr std::size_t kMaxTextBytes = 0xFFFFFFFE;  // positions are 32 bits

constexpr std::size_t kMaxKeptIds = std::size_t{1} << 20;

/// What one call of encode needs; kept between calls.
struct Workspace {
  WordCache cache;
  BpeScratch scratch;
  std::vector<TextPart> parts;
  std::string prefixed;
  std::vector<std::uint32_t> ids;  // the result as it grows; longer than `count`
  std::size_t count = 0;

  /// Where the next ids go, with room for `more`.
  std::uint32_t* room_for(std::size_t more) {
    if (ids.size() - count < more) ids.resize(std::max(ids.size() * 2, count + more));
    return ids.data() + count;
  }

  void append(std::span<const std::uint32_t> more) {
    std::copy(more.begin(), more.end(), room_for(more.size()));
    count += more.size();
  }
};

/// Lends a workspace to each thread that encodes at the same time.
class WorkspacePool {
 public:
  std::unique_ptr<Workspace> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<Workspace> workspace = std::move(free_.back());
        free_.pop_back();
        return workspace;
      }
    }
    return std::make_unique<Workspace>();
  }

  void give_back(std::unique_ptr<Workspace> workspace) {
    if (workspace->ids.size() > kMaxKeptIds)
      return;  // one huge text must not keep its memory for ever
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(workspace));
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Workspace>> free_;
};

/// The text of every id, in one block.
struct TokenTable {
  std::string bytes;
  std::vector<std::uint32_t> start;  // [vocab_size + 1]
  std::vector<bool> special;

  explicit TokenTable(const TokenizerSpec& spec) : special(spec.vocab_size) {
    std::vector<std::string_view> text(spec.vocab_size);
    for (const auto& [token, id] : spec.vocab) text[id] = token;
    for (const AddedToken& token :
         spec.added) {  // an added token with a model's id replaces its text
      text[token.id] = token.content;
      special[token.id] = token.special;
    }
    start.push_back(0);
    for (const std::string_view token : text) {
      bytes += from_byte_level(token);
      start.push_back(static_cast<std::uint32_t>(bytes.size()));
    }
  }

  [[nodiscard]] std::string_view at(std::uint32_t id) const {
    if (id + std::size_t{1} >= start.size()) return {};
    return std::string_view(bytes).substr(start[id], start[id + 1] - start[id]);
  }
};

/// The roles that tokenizer_config.json gives to tokens.
struct Roles {
  std::optional<std::uint32_t> bos, eos, pad;
};

std::string hash_of(const TokenizerSpec& spec) {
  Hasher hasher;
  const auto line = [&hasher](const auto&... values) {
    std::string text;
    (text.append(values).push_back('\t'), ...);
    hasher.update(text + '\n');
  };
  const auto number = [](auto value) { return std::to_string(value); };
  line("trireme-tokenizer-1", "bpe", number(spec.ignore_merges));
  std::vector<std::pair<std::uint32_t, std::string_view>> vocab;
  for (const auto& [token, id] : spec.vocab) vocab.emplace_back(id, token);
  std::sort(vocab.begin(), vocab.end());
  // Lengths first, so that no token can look like two lines.
  for (const auto& [id, token] : vocab)
    line("token", number(id), number(token.size()), std::string(token));
  for (const MergeRule& rule : spec.merges) line("merge", number(rule.left), number(rule.right));
  for (const AddedToken& token : spec.added) {
    line("added",
         number(token.id),
         number(token.content.size()),
         token.content,
         number(token.single_word),
         number(token.lstrip),
         number(token.rstrip),
         number(token.normalized),
         number(token.special));
  }
  line("split", spec.split == SplitPattern::gpt2 ? "gpt2" : "none", number(spec.add_prefix_space));
  for (const std::uint32_t id : spec.prefix_ids) line("before", number(id));
  for (const std::uint32_t id : spec.suffix_ids) line("after", number(id));
  return hasher.hex();
}

}  // namespace

struct Tokenizer::Impl {
  Impl(const std::map<std::string, std::string>& contents,
       std::string_view where,
       TokenizerSpec parsed)
      : files(contents),
        spec(std::move(parsed)),
        matcher(spec.added),
        model(spec),
        table(spec),
        hash(hash_of(spec)) {
    for (const AddedToken& token : spec.added) added_ids.emplace(token.content, token.id);
    const auto config = files.find(kConfigFile);
    if (config != files.end()) read_config(config->second, cat(where, "/", kConfigFile));
  }

  [[nodiscard]] std::optional<std::uint32_t> id_of(const std::string& token) const {
    if (const auto found = added_ids.find(token); found != added_ids.end()) return found->second;
    if (const auto found = spec.vocab.find(token); found != spec.vocab.end()) return found->second;
    return std::nullopt;
  }

  /// A role names a token, or describes it in an object.
  [[nodiscard]] std::optional<std::uint32_t> role(const SortedJson& config,
                                                  const char* key,
                                                  const std::string& where) const {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) return std::nullopt;
    const SortedJson& name = found->is_object() ? found->value("content", SortedJson()) : *found;
    if (!name.is_string())
      fail(ErrorKind::data, where, ": ", key, " must be a token or an object with its content");
    const auto id = id_of(name.get<std::string>());
    if (!id)
      fail(ErrorKind::data,
           where,
           ": ",
           key,
           " = '",
           name.get<std::string>(),
           "' is not in the vocabulary of ",
           kModelFile);
    return id;
  }

  void read_config(std::string_view text, const std::string& where) {
    const SortedJson config = parse_sorted_json(text, where, {.max_bytes = kMaxTokenizerFileBytes});
    if (!config.is_object())
      fail(ErrorKind::data, where, " is ", config.type_name(), ", must be an object");
    roles = {.bos = role(config, "bos_token", where),
             .eos = role(config, "eos_token", where),
             .pad = role(config, "pad_token", where)};
    // Users of `transformers` would add what only this list has, and so train on other ids than we
    // do.
    const auto listed = config.find("added_tokens_decoder");
    if (listed == config.end() || !listed->is_object()) return;
    for (const auto& [id, token] : listed->items()) {
      const SortedJson content =
          token.is_object() ? token.value("content", SortedJson()) : SortedJson();
      if (!content.is_string())
        fail(ErrorKind::data, where, ": added_tokens_decoder['", id, "'] has no content");
      const auto ours = id_of(content.get<std::string>());
      if (ours && std::to_string(*ours) == id) continue;
      fail(ErrorKind::data,
           where,
           ": added_tokens_decoder gives '",
           content.get<std::string>(),
           "' the id ",
           id,
           ", but in ",
           kModelFile,
           ours ? cat(" it is ", *ours) : std::string(" it is absent"));
    }
  }

  void encode_part(std::string_view text, Workspace& work) const;

  std::map<std::string, std::string> files;
  TokenizerSpec spec;
  std::unordered_map<std::string, std::uint32_t> added_ids;
  AddedTokenMatcher matcher;
  BpeModel model;
  TokenTable table;
  std::string hash;
  Roles roles;
  mutable WorkspacePool pool;
};

void Tokenizer::Impl::encode_part(std::string_view text, Workspace& work) const {
  if (spec.add_prefix_space && !text.starts_with(' ')) {
    work.prefixed.assign(1, ' ').append(text);
    text = work.prefixed;
  }
  const auto encode_piece = [&](std::string_view piece) {
    std::uint32_t* const out = work.room_for(std::max(piece.size(), WordCache::kMaxShortIds));
    std::size_t count = work.cache.find(piece, out);
    if (count == 0) {
      count = model.encode_piece(piece, work.scratch, out);
      work.cache.insert(piece, std::span(out, count));
    }
    work.count += count;
  };
  if (spec.split == SplitPattern::gpt2) {
    split_gpt2(text, encode_piece);
  } else {
    encode_piece(text);
  }
}

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Tokenizer Tokenizer::load(const std::filesystem::path& folder_or_file) {
  std::map<std::string, std::string> files;
  if (!std::filesystem::is_directory(folder_or_file)) {
    files[kModelFile] = read_file(folder_or_file, kMaxTokenizerFileBytes);
    return from_files(files, folder_or_file.string());
  }
  for (const char* name : {kModelFile, kConfigFile, kTemplateFile}) {
    const std::filesystem::path path = folder_or_file / name;
    if (name == kModelFile || std::filesystem::exists(path))
      files[name] = read_file(path, kMaxTokenizerFileBytes);
  }
  return from_files(files, folder_or_file.string());
}

Tokenizer Tokenizer::from_files(const std::map<std::string, std::string>& files,
                                std::string_view where) {
  const auto model = files.find(kModelFile);
  if (model == files.end()) fail(ErrorKind::data, where, ": ", kModelFile, " is missing");
  return Tokenizer(
      std::make_shared<const Impl>(files, where, parse_tokenizer_json(model->second, where)));
}

std::vector<std::uint32_t> Tokenizer::encode(std::string_view utf8,
                                             const EncodeOptions& options) const {
  if (utf8.size() > kMaxTextBytes)
    fail(ErrorKind::data,
         "text of ",
         utf8.size(),
         " bytes, at most ",
         kMaxTextBytes,
         " are encoded at once");
  check_utf8(utf8, "text");
  std::unique_ptr<Workspace> work = impl_->pool.take();
  work->count = 0;
  if (options.add_special_tokens) work->append(impl_->spec.prefix_ids);
  work->parts.clear();
  if (options.match_added_tokens) {
    impl_->matcher.split(utf8, work->parts);
  } else if (!utf8.empty()) {
    work->parts.push_back({utf8, std::nullopt});
  }
  for (const TextPart& part : work->parts) {
    if (part.id) {
      work->append(std::span(&*part.id, 1));
    } else {
      impl_->encode_part(part.text, *work);
    }
  }
  if (options.add_special_tokens) work->append(impl_->spec.suffix_ids);
  std::vector<std::uint32_t> ids(work->ids.begin(),
                                 work->ids.begin() + static_cast<std::ptrdiff_t>(work->count));
  impl_->pool.give_back(std::move(work));
  return ids;
}

std::string Tokenizer::decode(std::span<const std::uint32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (const std::uint32_t id : ids) {
    if (!(skip_special_tokens && is_special(id))) bytes += impl_->table.at(id);
  }
  std::string text;
  text.reserve(bytes.size());
  append_lossy_utf8(bytes, text);
  return text;
}

std::uint32_t Tokenizer::vocab_size() const {
  return impl_->spec.vocab_size;
}

std::optional<std::uint32_t> Tokenizer::token_to_id(std::string_view token) const {
  return impl_->id_of(std::string(token));
}

std::string_view Tokenizer::token_bytes(std::uint32_t id) const {
  return impl_->table.at(id);
}

bool Tokenizer::is_special(std::uint32_t id) const {
  return id < impl_->table.special.size() && impl_->table.special[id];
}

const std::vector<AddedToken>& Tokenizer::added_tokens() const {
  return impl_->spec.added;
}

std::optional<std::uint32_t> Tokenizer::bos_id() const {
  return impl_->roles.bos;
}

std::optional<std::uint32_t> Tokenizer::eos_id() const {
  return impl_->roles.eos;
}

std::optional<std::uint32_t> Tokenizer::pad_id() const {
  return impl_->roles.pad;
}

const std::map<std::string, std::string>& Tokenizer::files() const {
  return impl_->files;
}

std::string Tokenizer::content_hash() const {
  return impl_->hash;
}

}  // namespace trireme
