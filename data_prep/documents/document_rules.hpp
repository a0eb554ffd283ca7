#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/json.hpp"
#include "data_prep/documents/document_config.hpp"
#include "data_prep/documents/jsonl_record.hpp"
#include "text/chat/augment.hpp"
#include "text/chat/jinja_chat.hpp"
#include "text/tokenizer.hpp"

namespace trireme::data_prep {

/// A checked DocumentConfig with all defaults resolved and all files read.
struct DocumentRules {
  DocumentConfig config;
  std::int64_t seq_len = 0;  // longer conversations and sides of pairs are cut
  OnBadText on_bad_text = OnBadText::error;
  std::vector<std::string> fields = {};  // --fields, see ChatReader; empty: default names
  text::ChatAugment augment = {};
  std::vector<std::string> ignore_fields = {};  // --ignore-fields
  // The record form of each input (find_record_forms); empty: each record may have another form.
  std::vector<const text::RecordForm*> forms = {};
  text::ChatTemplatePtr chat_template = {};  // null for kinds without chats
};

/// Returns true if --ignore-fields names the field: by its whole name ("messages[].name"), by its
/// last component ("name"), or by the part before its explanation in parentheses.
bool is_named(const std::vector<std::string>& ignore_fields, std::string_view field);

/// Throws Error(data) if the file of system prompts cannot be read, or is empty and needed.
DocumentRules read_rules(const DocumentConfig& config, std::int64_t seq_len);

/// Makes the chat template that --template tokenizer or --template-file asks for, and gives the
/// tokenizer the Jinja text of the file, so that the set, its runs and exports have it.
/// `rules.config.chat.format` becomes the name of the template. Does nothing for named templates.
/// Throws Error(usage) if the tokenizer has no template, Error(data) for a template that is not
/// supported.
void use_jinja_template(DocumentRules& rules, text::Tokenizer& tokenizer);

/// Adds the rules that affect the bytes of a set of this kind, except kind and seq_len.
void put_identity(const DocumentRules& rules, Json& identity);

}  // namespace trireme::data_prep
