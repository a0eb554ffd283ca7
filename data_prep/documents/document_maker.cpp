#include "data_prep/documents/document_maker.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "text/chat/chat_template.hpp"
#include "text/chat/markers.hpp"
#include "text/spec/tokenizer_spec.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::data_prep {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

constexpr std::size_t kMaxNameBytes = 200;

/// Makes documents of a text between a begin and an end token.
class TextDocuments : public DocumentMaker {
 public:
  TextDocuments(const text::Tokenizer& tokenizer, const DocumentRules& rules)
      : DocumentMaker(tokenizer), reader_(rules.config.text.field, rules.on_bad_text) {
    const TextConfig& config = rules.config.text;
    options_.add_special_tokens = false;
    options_.match_added_tokens = config.special_in_text == "allow";
    if (config.bos) bos_ = tokenizer.bos_id();
    if (config.eos) eos_ = tokenizer.eos_id();
  }

  void take(const Record& record, ChunkResult& result) override {
    const TextRecord read = reader_.read(record);
    if (!is_text(read, record, result)) return;
    add_ignored(reader_.unread(), record, result);
    std::vector<std::uint32_t> ids = tokenizer().encode(read.text, options_);
    if (ids.empty()) {
      ++result.documents.counts.dropped;
      return;
    }
    if (bos_) ids.insert(ids.begin(), *bos_);
    if (eos_) ids.push_back(*eos_);
    add_tokens(ids, result);
    end_document(record, ids.size(), xxh3_64(read.text), result);
  }

 private:
  TextFieldReader reader_;
  text::EncodeOptions options_;
  std::optional<std::uint32_t> bos_, eos_;
};

}  // namespace

DocumentMaker::DocumentMaker(text::Tokenizer tokenizer)
    : tokenizer_(std::move(tokenizer)),
      width_(size_of(data::token_dtype_for(tokenizer_.vocab_size()))) {}

bool DocumentMaker::is_text(const TextRecord& text, const Record& record, ChunkResult& result) {
  switch (text.status) {
    case RecordStatus::blank:
      return false;
    case RecordStatus::bad:
      add_bad(record, text.reason, result);
      return false;
    case RecordStatus::bad_text:
      result.fatal = InvalidRecord{
          result.source, record.position,
          cat(text.reason,
              "; --on-bad-text skip drops such lines, replace writes U+FFFD. Give another --output "
              "with it, because shards belong to the options that they were made with")};
      return false;
    case RecordStatus::text:
      break;
  }
  result.documents.counts.replaced_chars += text.replaced;
  return true;
}

void DocumentMaker::add_bad(const Record& record, std::string reason, ChunkResult& result) {
  ++result.documents.counts.bad_lines;
  if (result.bad.size() < kMaxInvalidListed)
    result.bad.push_back({result.source, record.position, std::move(reason)});
}

void DocumentMaker::add_ignored(const std::vector<text::UnreadField>& fields, const Record& record,
                                ChunkResult& result) {
  for (const text::UnreadField& field : fields) {
    std::string name;  // a key may be long or contain a lone surrogate
    text::append_lossy_utf8(std::string_view(field.name).substr(0, kMaxNameBytes), name);
    data::ignored_slot(result.ignored, name)
        .add({1, field.has_text ? 1U : 0U, result.source, record.position});
  }
}

void DocumentMaker::add_tokens(std::span<const std::uint32_t> ids, ChunkResult& result) const {
  if (ids.empty()) return;
  auto& parts = result.documents.token_parts;
  if (parts.empty()) parts.emplace_back();
  std::vector<std::byte>& tokens = parts.back();
  std::byte* at = &*tokens.insert(tokens.end(), ids.size() * width_, std::byte{0});
  for (const std::uint32_t id : ids) {
    std::memcpy(at, &id, width_);  // little-endian: the low bytes come first
    at += width_;
  }
}

void DocumentMaker::end_document(const Record& record, std::uint64_t num_tokens,
                                 std::uint64_t text_hash, ChunkResult& result) {
  data::DocumentColumns& documents = result.documents;
  documents.offset.push_back(documents.offset.back() + num_tokens);
  documents.source.push_back(result.source);
  documents.source_offset.push_back(record.position);
  documents.line.push_back(static_cast<std::uint32_t>(result.num_records));
  documents.text_xxh3.push_back(text_hash);
  ++documents.counts.documents;
  documents.counts.tokens += num_tokens;
}

std::unique_ptr<DocumentMaker> make_document_maker(const text::Tokenizer& tokenizer,
                                                   const DocumentRules& rules) {
  if (chat_form(rules.config) == text::ChatForm::prompt)
    return make_prompt_documents(tokenizer, rules);
  if (chat_form(rules.config)) return make_chat_documents(tokenizer, rules);
  return std::make_unique<TextDocuments>(tokenizer, rules);
}

void warn_of_unknown_markers(const DocumentRules& rules, const text::Tokenizer& tokenizer) {
  if (rules.chat_template == nullptr) return;
  const std::vector<std::string_view> unknown =
      text::missing_markers(*rules.chat_template, tokenizer);
  if (unknown.empty()) return;
  log::warn(formatted(
      "--template {} writes {}, which are not tokens of the tokenizer: they become plain characters, and training refuses the set without --allow-missing-markers. Does this template belong to this tokenizer?",
      rules.chat_template->name, joined(unknown, " ")));
}

}  // namespace trireme::data_prep
