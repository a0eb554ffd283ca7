#include "text/tokenizer.hpp"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/hash/xxh3.hpp"
#include "text/encoder.hpp"
#include "text/spec/tokenizer_spec.hpp"
#include "text/spec/vocab_files.hpp"
#include "text/unicode/byte_level.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

constexpr const char* kModelFile = "tokenizer.json";
constexpr const char* kConfigFile = "tokenizer_config.json";
constexpr const char* kTemplateFile = "chat_template.jinja";
constexpr const char* kVocabFiles[] = {"vocab.json", "merges.txt", "added_tokens.json",
                                       "special_tokens_map.json"};
constexpr std::size_t kMaxTextBytes = 0xFFFFFFFE;  // positions are 32 bits

/// A ByteLevel step without other steps. Such tokenizers keep their original form in the hash.
struct ByteLevelForm {
  bool prefix_space = false;
  bool regex = false;
};

std::optional<ByteLevelForm> byte_level_form(std::span<const SplitStep> steps) {
  ByteLevelForm form;
  if (!steps.empty() && steps.front() == SplitStep::prefix_space) {
    form.prefix_space = true;
    steps = steps.subspan(1);
  }
  if (!steps.empty() && steps.front() == SplitStep::gpt2) {
    form.regex = true;
    steps = steps.subspan(1);
  }
  return steps.empty() ? std::optional(form) : std::nullopt;
}

/// Adds the parts that only models of SentencePiece have.
template <class Line, class Number>
void hash_pieces(const TokenizerSpec& spec, const Line& line, const Number& number) {
  const PieceSpec& pieces = *spec.pieces;
  line("pieces", pieces.unigram ? "unigram" : "bpe", number(pieces.byte_fallback),
       number(pieces.fuse_unk), pieces.unk_id ? number(*pieces.unk_id) : std::string("none"));
  for (const double score : pieces.scores)
    line("score", number(std::bit_cast<std::uint64_t>(score)));
  for (const PieceStep& step : pieces.steps)
    line("piece step", number(static_cast<int>(step.kind)), step.text,
         number(static_cast<int>(step.prepend)), number(step.split),
         number(static_cast<int>(step.behavior)));
  for (const NormalizerStep& step : spec.normalizer.steps()) {
    line("normalize", number(static_cast<int>(step.kind)), number(step.from.size()), step.from,
         number(step.to.size()), step.to, number(step.left), number(step.right));
    if (step.charsmap != nullptr)
      line("charsmap", number(step.charsmap->bytes().size()), step.charsmap->bytes());
  }
}

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
  // Lengths come first, so that a token cannot look like two lines.
  for (const auto& [id, token] : vocab)
    line("token", number(id), number(token.size()), std::string(token));
  for (const MergeRule& rule : spec.merges) line("merge", number(rule.left), number(rule.right));
  for (const AddedToken& token : spec.added) {
    line("added", number(token.id), number(token.content.size()), token.content,
         number(token.single_word), number(token.lstrip), number(token.rstrip),
         number(token.normalized), number(token.special));
  }
  if (const auto form = byte_level_form(spec.steps)) {
    line("split", form->regex ? "gpt2" : "none", number(form->prefix_space));
  } else {
    for (const SplitStep step : spec.steps) line("step", name_of(step));
  }
  if (spec.pieces) hash_pieces(spec, line, number);
  if (spec.normalizer.is_nfc()) line("nfc");
  if (spec.normalizer.is_nfkc()) line("nfkc");
  for (const std::uint32_t id : spec.prefix_ids) line("before", number(id));
  for (const std::uint32_t id : spec.suffix_ids) line("after", number(id));
  return hasher.hex();
}

}  // namespace

struct Tokenizer::Impl {
  /// The bytes of all tokens in one string.
  struct TokenTable {
    std::string bytes;
    std::vector<std::uint32_t> start;  // [vocab_size + 1]
    std::vector<bool> special;

    explicit TokenTable(const TokenizerSpec& spec) : special(spec.vocab_size) {
      std::vector<std::string> text(spec.vocab_size);
      std::unordered_set<std::string_view> specials;
      for (const auto& [token, id] : spec.vocab) text[id] = token;
      for (const AddedToken& token : spec.added) {  // added tokens replace model tokens
        text[token.id] = token.normalized ? spec.normalizer.apply(token.content) : token.content;
        if (token.special) specials.insert(token.content);
      }
      // Hugging Face looks up the decoded text, so special tokens that the normalizer changes are
      // not special.
      for (const AddedToken& token : spec.added)
        special[token.id] = specials.contains(text[token.id]);
      start.push_back(0);
      for (const std::string& token : text) {
        bytes += spec.pieces ? piece_text(spec.pieces->decoder, token) : from_byte_level(token);
        start.push_back(static_cast<std::uint32_t>(bytes.size()));
      }
    }

    [[nodiscard]] std::string_view at(std::uint32_t id) const {
      if (id + std::size_t{1} >= start.size()) return {};
      return std::string_view(bytes).substr(start[id], start[id + 1] - start[id]);
    }
  };

  struct Roles {
    std::optional<std::uint32_t> bos, eos, pad;
  };

  Impl(const std::map<std::string, std::string>& contents, std::string_view where,
       TokenizerSpec parsed)
      : files(contents), spec(std::move(parsed)), encoder(spec), table(spec), hash(hash_of(spec)) {
    for (const AddedToken& token : spec.added) added_ids.emplace(token.content, token.id);
    if (spec.pieces) {
      pieces.resize(spec.vocab_size);
      for (const auto& [token, id] : spec.vocab) pieces[id] = token;
      for (const AddedToken& token : spec.added)
        pieces[token.id] = token.normalized ? spec.normalizer.apply(token.content) : token.content;
    }
    const auto config = files.find(kConfigFile);
    if (config != files.end()) read_config(config->second, formatted("{}/{}", where, kConfigFile));
  }

  /// Makes a tokenizer that knows ids only: no token has bytes.
  Impl(const std::map<std::string, std::string>& contents, std::uint32_t num_ids,
       std::string unreadable)
      : files(contents),
        spec(bytes_alone()),
        encoder(spec),
        table(TokenizerSpec{}),
        reason(std::move(unreadable)) {
    spec.vocab_size = num_ids;
  }

  /// Returns the smallest valid vocabulary for an encoder.
  static TokenizerSpec bytes_alone() {
    TokenizerSpec bytes;
    for (int byte = 0; byte < 256; ++byte) {
      bytes.vocab.emplace(to_byte_level(std::string(1, static_cast<char>(byte))),
                          static_cast<std::uint32_t>(byte));
    }
    bytes.vocab_size = 256;
    return bytes;
  }

  [[nodiscard]] std::optional<std::uint32_t> id_of(const std::string& token) const {
    if (const auto found = added_ids.find(token); found != added_ids.end()) return found->second;
    if (const auto found = spec.vocab.find(token); found != spec.vocab.end()) return found->second;
    return std::nullopt;
  }

  /// Reads a role: a token, or an object with its content.
  [[nodiscard]] std::optional<std::uint32_t> role(const SortedJson& config, const char* key,
                                                  const std::string& where) const {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) return std::nullopt;
    const SortedJson& name = found->is_object() ? found->value("content", SortedJson()) : *found;
    if (!name.is_string())
      fail(ErrorKind::data, "{}: {} must be a token or an object with its content", where, key);
    const auto id = id_of(name.get<std::string>());
    if (!id)
      fail(ErrorKind::data, "{}: {} = '{}' is not in the vocabulary of {}", where, key,
           name.get<std::string>(), kModelFile);
    return id;
  }

  void read_config(std::string_view text, const std::string& where) {
    const SortedJson config = parse_sorted_json(text, where, {.max_bytes = kMaxTokenizerFileBytes});
    if (!config.is_object())
      fail(ErrorKind::data, "{} is {}, must be an object", where, config.type_name());
    roles = {.bos = role(config, "bos_token", where),
             .eos = role(config, "eos_token", where),
             .pad = role(config, "pad_token", where)};
    // transformers would add tokens that only this list has, and its ids would differ.
    const auto listed = config.find("added_tokens_decoder");
    if (listed == config.end() || !listed->is_object()) return;
    for (const auto& [id, token] : listed->items()) {
      const SortedJson content =
          token.is_object() ? token.value("content", SortedJson()) : SortedJson();
      if (!content.is_string())
        fail(ErrorKind::data, "{}: added_tokens_decoder['{}'] has no content", where, id);
      const auto ours = id_of(content.get<std::string>());
      if (ours && std::to_string(*ours) == id) continue;
      fail(ErrorKind::data, "{}: added_tokens_decoder gives '{}' the id {}, but in {}{}", where,
           content.get<std::string>(), id, kModelFile,
           ours ? formatted(" it is {}", *ours) : std::string(" it is absent"));
    }
  }

  std::map<std::string, std::string> files;
  TokenizerSpec spec;
  std::unordered_map<std::string, std::uint32_t> added_ids;
  Encoder encoder;
  TokenTable table;
  std::vector<std::string> pieces;  // by id, for a model of SentencePiece
  std::string hash;
  std::string reason;  // why the tokenizer is not readable; empty: it is
  Roles roles;
  mutable WorkspacePool pool;
};

Tokenizer::Tokenizer(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Tokenizer Tokenizer::load(const std::filesystem::path& directory_or_file) {
  std::map<std::string, std::string> files;
  if (!std::filesystem::is_directory(directory_or_file)) {
    files[kModelFile] = read_file(directory_or_file, kMaxTokenizerFileBytes);
    return from_files(files, directory_or_file.string());
  }
  const bool has_model = std::filesystem::exists(directory_or_file / kModelFile);
  const auto read = [&](const char* name) {
    const std::filesystem::path path = directory_or_file / name;
    if (std::filesystem::exists(path)) files[name] = read_file(path, kMaxTokenizerFileBytes);
  };
  for (const char* name : {kModelFile, kConfigFile, kTemplateFile}) read(name);
  if (!has_model) {  // files of older tokenizers; only the result is kept
    for (const char* name : kVocabFiles) read(name);
    add_tokenizer_json(files, directory_or_file.string());
    for (const char* name : kVocabFiles) files.erase(name);
  }
  return from_files(files, directory_or_file.string());
}

Tokenizer Tokenizer::from_files(const std::map<std::string, std::string>& files,
                                std::string_view where) {
  const auto model = files.find(kModelFile);
  if (model == files.end()) fail(ErrorKind::data, "{}: {} is missing", where, kModelFile);
  return Tokenizer(
      std::make_shared<const Impl>(files, where, parse_tokenizer_json(model->second, where)));
}

Tokenizer Tokenizer::ids_only(const std::map<std::string, std::string>& files,
                              std::uint32_t num_ids, const std::string& reason) {
  return Tokenizer(std::make_shared<const Impl>(files, num_ids, reason));
}

std::vector<std::uint32_t> Tokenizer::encode(std::string_view utf8,
                                             const EncodeOptions& options) const {
  if (!impl_->reason.empty()) throw Error(ErrorKind::data, impl_->reason);
  if (utf8.size() > kMaxTextBytes)
    fail(ErrorKind::data, "The text has {} bytes. At most {} can be encoded at once.", utf8.size(),
         kMaxTextBytes);
  check_utf8(utf8, "text");
  std::unique_ptr<Workspace> work = impl_->pool.take();
  work->count = 0;
  if (options.add_special_tokens) work->append(impl_->spec.prefix_ids);
  impl_->encoder.encode(utf8, options.match_added_tokens, options.begins_text, *work);
  if (options.add_special_tokens) work->append(impl_->spec.suffix_ids);
  std::vector<std::uint32_t> ids(work->ids.begin(),
                                 work->ids.begin() + static_cast<std::ptrdiff_t>(work->count));
  impl_->pool.give_back(std::move(work));
  return ids;
}

std::string Tokenizer::decode(std::span<const std::uint32_t> ids, bool skip_special_tokens) const {
  if (piece_decoder() != nullptr) {
    StreamDecoder stream(*this, skip_special_tokens);
    std::string text;
    for (const std::uint32_t id : ids) text += stream.push(id);
    return text += stream.finish();
  }
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

std::string_view Tokenizer::token_bytes(std::uint32_t id) const {
  return impl_->table.at(id);
}

std::string Tokenizer::token_content(std::uint32_t id) const {
  const auto found = std::ranges::find(impl_->spec.added, id, &AddedToken::id);
  return found != impl_->spec.added.end() ? found->content : std::string(token_bytes(id));
}

const PieceDecoder* Tokenizer::piece_decoder() const {
  return impl_->spec.pieces ? &impl_->spec.pieces->decoder : nullptr;
}

std::string_view Tokenizer::piece(std::uint32_t id) const {
  return id < impl_->pieces.size() ? std::string_view(impl_->pieces[id]) : std::string_view();
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

bool Tokenizer::is_ids_only() const {
  return !impl_->reason.empty();
}

std::string Tokenizer::content_hash() const {
  return impl_->hash;
}

}  // namespace trireme::text
