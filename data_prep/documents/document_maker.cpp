#include "data_prep/documents/document_maker.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <set>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"
#include "data/shards/schema.hpp"
#include "data_prep/documents/chat_documents.hpp"
#include "text/chat/chat_encoder.hpp"
#include "text/chat/chat_targets.hpp"

namespace trireme {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

/// Kind pretrain: a text between a begin and an end token.
class TextDocuments : public DocumentMaker {
 public:
  TextDocuments(const Tokenizer& tokenizer, const PackConfig& config)
      : DocumentMaker(tokenizer, config), reader_(config.field, config.on_bad_text) {
    options_.add_special_tokens = false;
    options_.match_added_tokens = config.special_in_text == "allow";
    if (config.bos) bos_ = tokenizer.bos_id();
    if (config.eos) eos_ = tokenizer.eos_id();
  }

  void take(const Line& line, std::uint32_t file, BlockResult& result) override {
    const TextRecord record = reader_.read(line);
    if (!is_record(record, line, file, result)) return;
    std::vector<std::uint32_t> ids = tokenizer().encode(record.text, options_);
    if (ids.empty()) {
      ++result.counts.dropped;
      return;
    }
    if (bos_) ids.insert(ids.begin(), *bos_);
    if (eos_) ids.push_back(*eos_);
    add_tokens(ids, result);
    end_document(line, ids.size(), xxh3_64(record.text), result);
  }

 private:
  TextFieldReader reader_;
  EncodeOptions options_;
  std::optional<std::uint32_t> bos_, eos_;
};

void check_fields(const PackConfig& config) {
  const std::vector<std::string>& fields = config.chat.fields;
  if (fields.empty()) return;
  const auto refuse = [&](const char* what) {
    std::string given = fields[0];
    for (std::size_t i = 1; i < fields.size(); ++i) given.append(",").append(fields[i]);
    fail(ErrorKind::usage, "--fields {}{}", given, what);
  };
  if (config.kind == schema::kKindPretrain)
    refuse(" is for --kind sft and dpo; for pretrain give the one field of the text as --field");
  if (config.kind == schema::kKindSft && fields.size() != 2)
    refuse(": --kind sft takes two names, USER,ASSISTANT: --fields question,answer");
  if (config.kind == schema::kKindDpo && fields.size() != 3)
    refuse(": --kind dpo takes three names, PROMPT,CHOSEN,REJECTED");
  std::set<std::string> names(fields.begin(), fields.end());
  if (names.contains("") || names.size() != fields.size())
    refuse(": each name must be there once and not be empty");
}

void check_ratio(double value, const char* name) {
  if (!(value >= 0 && value <= 1)) fail(ErrorKind::usage, "{} {}, must be in [0, 1]", name, value);
}

}  // namespace

DocumentMaker::DocumentMaker(Tokenizer tokenizer, const PackConfig&)
    : tokenizer_(std::move(tokenizer)), width_(size_of(token_dtype_for(tokenizer_.vocab_size()))) {}

bool DocumentMaker::is_record(const TextRecord& record, const Line& line, std::uint32_t file,
                              BlockResult& result) {
  switch (record.status) {
    case RecordStatus::blank:
      return false;
    case RecordStatus::bad:
      add_bad(line, file, record.reason, result);
      return false;
    case RecordStatus::bad_text:
      result.fatal = BadLine{file, line.offset, record.reason};
      return false;
    case RecordStatus::text:
      break;
  }
  result.counts.replaced_chars += record.replaced;
  return true;
}

void DocumentMaker::add_bad(const Line& line, std::uint32_t file, std::string reason,
                            BlockResult& result) {
  ++result.counts.bad_lines;
  if (result.bad.size() < kMaxBadListed)
    result.bad.push_back({file, line.offset, std::move(reason)});
}

void DocumentMaker::add_tokens(std::span<const std::uint32_t> ids, BlockResult& result) const {
  if (ids.empty()) return;
  std::byte* at = &*result.tokens.insert(result.tokens.end(), ids.size() * width_, std::byte{0});
  for (const std::uint32_t id : ids) {
    std::memcpy(at, &id, width_);  // little-endian: the low bytes come first
    at += width_;
  }
}

void DocumentMaker::end_document(const Line& line, std::uint64_t num_tokens,
                                 std::uint64_t text_hash, BlockResult& result) {
  result.lengths.push_back(num_tokens);
  result.offsets.push_back(line.offset);
  result.lines.push_back(result.line_of_next);
  result.text_hashes.push_back(text_hash);
}

std::unique_ptr<DocumentMaker> make_document_maker(const Tokenizer& tokenizer,
                                                   const PackConfig& config) {
  if (config.kind == schema::kKindSft || config.kind == schema::kKindDpo)
    return make_chat_documents(tokenizer, config);
  return std::make_unique<TextDocuments>(tokenizer, config);
}

void check_kind(const PackConfig& config) {
  const ChatConfig& chat = config.chat;
  if (config.kind == schema::kKindPretrain) {
    check_fields(config);
    if (!chat.format.empty())
      fail(ErrorKind::usage, "--template {} is for --kind sft and dpo", chat.format);
    return;
  }
  if (config.kind != schema::kKindSft && config.kind != schema::kKindDpo)
    fail(ErrorKind::usage, "--kind {}, must be pretrain, sft or dpo", config.kind);
  check_fields(config);
  chat_template(chat.format);
  parse_chat_mask(chat.mask);
  parse_special_in_content(chat.special_in_content);
  check_ratio(chat.augment.add_system, "--add-system");
  check_ratio(chat.augment.drop_empty_think, "--drop-empty-think");
  if (chat.copies < 1 || chat.copies > 1000)
    fail(ErrorKind::usage, "--copies {}, must be in [1, 1000]", chat.copies);
  if (chat.augment.add_system > 0 && chat.augment.system_prompts.empty())
    fail(ErrorKind::data, "--system-prompts: the file has no line with text");
}

void warn_of_unknown_markers(const PackConfig& config, const Tokenizer& tokenizer) {
  if (config.kind == schema::kKindPretrain) return;
  const std::vector<AddedToken>& added = tokenizer.added_tokens();
  std::string unknown;
  for (const std::string_view marker : chat_template(config.chat.format).markers) {
    const bool known = std::any_of(added.begin(), added.end(), [&](const AddedToken& token) {
      return token.content == marker;
    });
    if (!known) unknown.append(unknown.empty() ? "" : " ").append(marker);
  }
  if (unknown.empty()) return;
  log::warn(formatted(
      "--template {} writes {}, which the tokenizer does not know as tokens: they become plain characters. Is it the template of this tokenizer?",
      config.chat.format, unknown));
}

}  // namespace trireme
