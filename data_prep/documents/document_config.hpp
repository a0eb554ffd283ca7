#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/fields.hpp"
#include "core/problems.hpp"
#include "data/shards/set_content.hpp"
#include "data_prep/documents/jsonl_record.hpp"
#include "text/chat/jinja_chat.hpp"
#include "text/chat/record_forms.hpp"

/// Settings of `pack` for documents. All of them affect the bytes of a set. To add one: a member
/// and a visit line, with Identity::unless_default.
namespace trireme::data_prep {

/// Settings of kind pretrain: a line is a text.
struct TextConfig {
  std::string field = "text";
  bool bos = true;
  bool eos = true;
  std::string special_in_text = "allow";

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("field", self.field, "pretrain: field that holds the text",
          {.placeholder = "NAME", .identity = Identity::always});
    visit("bos", self.bos, "pretrain: begin token before each document, if the tokenizer has one",
          {.placeholder = "true|false", .identity = Identity::always});
    visit("eos", self.eos, "pretrain: end token after each document, if the tokenizer has one",
          {.placeholder = "true|false", .identity = Identity::always});
    visit("special_in_text", self.special_in_text,
          "pretrain: treat added tokens inside a text as tokens or as plain characters",
          {.values = {"allow", "text"}, .identity = Identity::always});
  }
};

/// Returns "chatml|llama3|..." for help and completion.
std::string chat_template_placeholder();

/// Help texts that name the kinds of data sets, made from the rows of RecordKind.
std::string kind_help();
std::string record_fields_help();
/// Returns "sft, dpo: " and the text. If `form` is given, names only the kinds of that form.
std::string chat_help(std::string_view text, std::optional<text::ChatForm> form = {});
/// Like chat_help, for options of kinds with answers: all but prompts.
std::string answer_help(std::string_view text);
/// Like chat_help, for options of system prompts, which records with two sides do not get.
std::string system_help(std::string_view text);
/// Returns "dpo, kto: " and the text, for options of kinds with two sides (SetContent::has_pairs).
std::string pair_help(std::string_view text);
std::vector<std::string> record_kind_names();

/// The value of --format that recognizes the form of each input.
inline constexpr std::string_view kAutoFormat = "auto";

/// Values and help text of --format, made from the rows of RecordForm.
std::vector<std::string> record_format_values();
std::string record_format_help();

/// Settings of kinds of chats: a line is a conversation or a pair of conversations. read_rules()
/// and put_identity() handle the identity of members without an identity trait.
struct ChatConfig {
  std::string record_format{kAutoFormat};
  std::string record_fields;
  std::string format;
  std::string template_file;
  std::string train_on = "all";
  std::string mask = "answer";
  std::string cut_pairs = "end";
  std::string special_in_content = "text";
  std::int64_t copies = 1;
  std::string augment = "none";
  double add_system = -1;
  double drop_empty_think = -1;
  std::string system_prompts;
  double thinking_ratio = -1;
  std::int64_t seed = 0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("format", self.record_format, record_format_help().c_str(),
          {.values = record_format_values(), .identity = Identity::unless_default});
    visit("fields", self.record_fields, record_fields_help().c_str(), {.placeholder = "NAMES"});
    visit("template", self.format,
          chat_help("chat template; tokenizer: the Jinja template of the tokenizer").c_str(),
          {.placeholder = chat_template_placeholder(), .identity = Identity::always});
    visit("template_file", self.template_file,
          chat_help("Jinja chat template in a file, instead of --template").c_str(),
          {.placeholder = "FILE"});
    visit(
        "mask", self.mask,
        answer_help("targets: each answer with its end token, or the targets of MiniMind").c_str(),
        {.values = {"answer", "minimind"}, .identity = Identity::always});
    visit("train_on", self.train_on,
          answer_help("answers that carry loss: all, or the last one of a conversation or side")
              .c_str(),
          {.values = {"all", "last"}, .identity = Identity::unless_default});
    visit(
        "cut_pairs", self.cut_pairs,
        pair_help("a side longer than --seq-len loses its end (like MiniMind) or the beginning of "
                  "its prompt (down to a quarter of --seq-len), or its pair is dropped")
            .c_str(),
        {.values = {data::kPairCutRules.begin(), data::kPairCutRules.end()}});
    visit("special_in_content", self.special_in_content,
          chat_help("added tokens inside a message are text, tokens, or make the record invalid")
              .c_str(),
          {.values = {"text", "allow", "error"}, .identity = Identity::always});
    visit("copies", self.copies,
          chat_help("documents per line, each with its own random choices (one per epoch)").c_str(),
          {.placeholder = "N", .least = 1, .most = 1000, .identity = Identity::always});
    visit(
        "augment", self.augment,
        chat_help(
            "minimind means --add-system 0.2 and --drop-empty-think 0.8 (0.95 for V2.5), for the kinds that have them")
            .c_str(),
        {.values = {"none", "minimind"}});
    visit("add_system", self.add_system,
          system_help("probability to add a missing system message; -1: set by --augment").c_str(),
          {.placeholder = "P", .identity = Identity::always});
    visit(
        "drop_empty_think", self.drop_empty_think,
        answer_help("probability to drop empty thoughts from a chat; -1: set by --augment").c_str(),
        {.placeholder = "P", .identity = Identity::always});
    visit("system_prompts", self.system_prompts,
          "prompts for --add-system, one per line; default: ten built-in prompts",
          {.placeholder = "FILE"});
    visit("thinking_ratio", self.thinking_ratio,
          chat_help("probability that a prompt opens a thought; -1: the choice of the template",
                    text::ChatForm::prompt)
              .c_str(),
          {.placeholder = "R", .identity = Identity::unless_default});
    visit("seed", self.seed, chat_help("random seed of these choices").c_str(),
          {.placeholder = "S", .least = 0});
  }
};

/// Returns true if the template of the chats is a Jinja template, which only pack can read.
inline bool has_jinja_template(const ChatConfig& config) {
  return !config.template_file.empty() || config.format == text::kTokenizerTemplate;
}

struct DocumentConfig {
  std::string kind = "pretrain";
  TextConfig text;
  ChatConfig chat;
  std::string on_bad_text = "error";
  std::string ignore_fields;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("kind", self.kind, kind_help().c_str(), {.values = record_kind_names()});
    TextConfig::fields(self.text, visit);
    ChatConfig::fields(self.chat, visit);
    visit("on_bad_text", self.on_bad_text, "handling of lone surrogates and invalid UTF-8",
          {.values = on_bad_text_names(), .identity = Identity::always});
    visit("ignore_fields", self.ignore_fields,
          "names of ignored fields, separated by commas: no warning about these fields, and no "
          "error with --fields",
          {.placeholder = "NAMES"});
  }
};

/// Returns the description of the data set's content; for an unknown kind, that of texts.
const data::SetContent& contents_of(const DocumentConfig& config);

/// Returns the chat form of the records; nullopt for texts and for an unknown kind.
std::optional<text::ChatForm> chat_form(const DocumentConfig& config);

/// Adds settings that the kind needs and that are missing or invalid. The caller checks trait
/// limits.
void check(const DocumentConfig& config, Problems& problems);

}  // namespace trireme::data_prep
