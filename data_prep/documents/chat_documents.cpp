
#include <algorithm>

#include "comm/agree.hpp"
#include "core/by_name.hpp"
#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "data/shards/set_content.hpp"
#include "data_prep/documents/chat_parts.hpp"
#include "data_prep/documents/document_maker.hpp"
#include "text/chat/chat_encoder.hpp"
#include "text/chat/chat_reader.hpp"
#include "text/chat/chat_targets.hpp"
#include "text/chat/chat_template.hpp"
#include "text/json/unread_field.hpp"

namespace trireme::data_prep {
namespace {

/// A rendered and encoded chat.
struct Chat {
  text::RenderedChat rendered;
  text::EncodedChat encoded;
};

std::vector<data::Span> to_spans(const std::vector<text::TokenSpan>& spans) {
  std::vector<data::Span> result;
  for (const text::TokenSpan& span : spans) result.push_back({span.begin, span.end});
  return result;
}

/// Returns the spans without the first `cut` tokens. Token 0 is never a target.
std::vector<data::Span> shifted(const std::vector<data::Span>& spans, std::size_t cut) {
  std::vector<data::Span> result;
  for (const data::Span& span : spans) {
    const std::size_t begin = std::max<std::size_t>(span.begin, cut + 1);
    if (begin < span.end) {
      result.push_back(
          {static_cast<std::uint32_t>(begin - cut), static_cast<std::uint32_t>(span.end - cut)});
    }
  }
  return result;
}

/// Returns the length of the common prefix of both sides in tokens.
std::size_t common_prompt(std::span<const std::uint32_t> chosen,
                          std::span<const std::uint32_t> rejected) {
  const auto differ = std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end());
  return static_cast<std::size_t>(differ.first - chosen.begin());
}

/// Removes the targets of all answers except the last one.
void keep_last_target(text::Conversation& conversation) {
  bool is_last = true;
  for (auto message = conversation.messages.rbegin(); message != conversation.messages.rend();
       ++message) {
    if (message->role != text::Role::assistant) continue;
    if (!is_last) message->is_target = false;
    is_last = false;
  }
}

/// Returns the number of answers without targets.
std::uint64_t count_untrained(const std::vector<text::Conversation>& conversations) {
  std::uint64_t sum = 0;
  for (const text::Conversation& conversation : conversations)
    sum += static_cast<std::uint64_t>(
        std::ranges::count_if(conversation.messages, [](const text::ChatMessage& one) {
          return one.role == text::Role::assistant && !one.is_target;
        }));
  return sum;
}

class ChatDocuments : public DocumentMaker {
 public:
  ChatDocuments(const text::Tokenizer& tokenizer, const DocumentRules& rules)
      : DocumentMaker(tokenizer),
        rules_(rules),
        form_(chat_form(rules.config).value()),
        content_(contents_of(rules.config)),
        seq_len_(static_cast<std::size_t>(rules.seq_len)),
        template_(*rules.chat_template),
        mask_(text::parse_chat_mask(rules.config.chat.mask)),
        cut_rule_(by_name<data::PairCutRule>(data::kPairCutRules, rules.config.chat.cut_pairs)),
        encoder_(tokenizer, text::parse_special_in_content(rules.config.chat.special_in_content)),
        reader_(form_, rules.fields),
        options_(render_options(tokenizer)),
        unwritten_(template_, options_) {}

  void take(const Record& record, ChunkResult& result) override {
    if (!rules_.forms.empty()) reader_.set_form(rules_.forms[result.file]);
    bool has_other_form = false;
    const auto parse = [&](const char* json, std::size_t size) {
      std::optional<RecordProblem> problem;
      auto found = reader_.read(json, size, conversations_);
      if (found) problem = RecordProblem{std::move(found->reason), found->bad_text};
      has_other_form = found && found->other_form;
      return problem;
    };
    const auto count = [&](std::string_view part) {
      std::uint64_t sum = 0;
      for (const text::Conversation& conversation : conversations_)
        sum += count_in(conversation, part);
      return sum;
    };
    const TextRecord text = judge_record(record, rules_.on_bad_text, repaired_, parse, count);
    if (has_other_form && rules_.config.chat.record_format == kAutoFormat)
      return refuse_other_form(record, text.reason, result);
    if (!is_text(text, record, result)) return;
    if (rules_.config.chat.train_on == "last")
      std::ranges::for_each(conversations_, keep_last_target);
    add_ignored(reader_.unread(), record, result);
    unwritten_.find(conversations_, unwritten_fields_);
    add_ignored(unwritten_fields_, record, result);
    for (std::int64_t copy = 0; copy < rules_.config.chat.copies; ++copy) {
      text::ChatDraw draw{result.file, record.position, static_cast<std::uint32_t>(copy), 0};
      for (std::uint32_t side = 0; side < conversations_.size(); ++side) {
        draw.side = content_.sample == data::SampleForm::answer ? 0 : side;
        if (const auto reason = make(conversations_[side], draw, chats_[side]))
          return add_bad(record, *reason, result);
      }
      content_.has_pairs() ? add_pair(record, result) : add_conversation(record, result);
    }
    result.documents.counts.untrained_messages += count_untrained(conversations_);
  }

 private:
  /// An input of two forms is an error, because pack would silently drop the records of one form.
  void refuse_other_form(const Record& record, const std::string& reason,
                         ChunkResult& result) const {
    const std::string_view form = rules_.forms[result.file]->name;
    result.fatal = InvalidRecord{
        result.source, record.position,
        formatted("{}, which is the form of the first records of this input; put the records of "
                  "each form into a file of their own, or give --format {} to skip the others",
                  reason, form)};
  }

  /// Renders and encodes a conversation. Returns the reason why this is not possible.
  std::optional<std::string> make(const text::Conversation& given, const text::ChatDraw& draw,
                                  Chat& chat) {
    std::optional<std::string> forged;
    try {
      forged = render_and_encode(given, draw, chat);
    } catch (const Error& error) {  // a Jinja template refuses the conversation
      if (error.kind() != ErrorKind::data) throw;
      return error.what();
    }
    if (forged) return formatted("a message contains the token {}", *forged);
    return std::nullopt;
  }

  std::optional<std::string> render_and_encode(const text::Conversation& given,
                                               const text::ChatDraw& draw, Chat& chat) {
    options_.drop_empty_think = text::drops_empty_think(rules_.augment, draw);
    if (form_ == text::ChatForm::conversation && rules_.augment.add_system > 0) {
      text::Conversation changed = given;
      text::add_system_prompt(rules_.augment, draw, changed);
      chat.rendered = template_.render(changed, options_);
    } else {
      chat.rendered = template_.render(given, options_);
    }
    return encoder_.encode(chat.rendered, chat.encoded);
  }

  [[nodiscard]] std::vector<data::Span> targets(const Chat& chat, std::size_t num_kept) const {
    return to_spans(
        text::chat_targets(chat.rendered, chat.encoded, mask_, template_.search, num_kept));
  }

  [[nodiscard]] bool has_targets(const Chat& chat) const {
    return !targets(chat, chat.encoded.ids.size()).empty();
  }

  void add_conversation(const Record& record, ChunkResult& result) {
    const Chat& chat = chats_[0];
    const std::size_t kept = std::min(seq_len_, chat.encoded.ids.size());
    const std::vector<data::Span> spans = targets(chat, kept);
    if (spans.empty()) {
      ++result.documents.counts.dropped;
      if (has_targets(chat)) ++result.documents.counts.dropped_long;
      return;
    }
    if (kept < chat.encoded.ids.size()) ++result.documents.counts.truncated;
    add_tokens(std::span(chat.encoded.ids).first(kept), result);
    result.documents.targets.loss.add(spans);
    end_document(record, kept, xxh3_64(chat.rendered.text), result);
  }

  void add_pair(const Record& record, ChunkResult& result) {
    const std::span<const std::uint32_t> chosen = chats_[0].encoded.ids;
    const std::span<const std::uint32_t> rejected = chats_[1].encoded.ids;
    const std::size_t prompt = common_prompt(chosen, rejected);
    const data::PairLengths lengths{prompt, chosen.size(), rejected.size()};
    if (prompt == chosen.size() && prompt == rejected.size()) {
      ++result.documents.counts.dropped;
      ++result.documents.counts.dropped_equal;
      return;
    }
    const auto found = data::cut_pair(lengths, seq_len_, cut_rule_);
    const data::PairCut cut = found.value_or(data::PairCut{});
    const std::vector<data::Span> chosen_spans = targets(chats_[0], cut.chosen_end);
    const std::vector<data::Span> rejected_spans = targets(chats_[1], cut.rejected_end);
    if (!found || !content_.keeps(lengths, cut, chosen_spans, rejected_spans, cut_rule_)) {
      ++result.documents.counts.dropped;
      const int num_trained = (has_targets(chats_[0]) ? 1 : 0) + (has_targets(chats_[1]) ? 1 : 0);
      if (num_trained == (content_.sample == data::SampleForm::answer ? 1 : 2))
        ++result.documents.counts.dropped_long;
      return;
    }
    const bool answer_cut = cut.chosen_end < chosen.size() || cut.rejected_end < rejected.size();
    if (cut.begin != 0 || answer_cut) ++result.documents.counts.truncated;
    if (cut.begin != 0) ++result.documents.counts.cut_prompts;
    if (answer_cut) ++result.documents.counts.cut_answers;
    const std::size_t chosen_len = cut.chosen_end - prompt;
    const std::size_t rejected_len = cut.rejected_end - prompt;
    add_tokens(chosen.subspan(cut.begin, cut.chosen_end - cut.begin),
               result);  // includes the prompt
    add_tokens(rejected.subspan(prompt, rejected_len), result);
    data::PairTable& pairs = result.documents.targets.pairs;
    pairs.prompt_len.push_back(static_cast<std::uint32_t>(prompt - cut.begin));
    pairs.chosen_len.push_back(static_cast<std::uint32_t>(chosen_len));
    pairs.rejected_len.push_back(static_cast<std::uint32_t>(rejected_len));
    pairs.chosen.add(shifted(chosen_spans, cut.begin));
    pairs.rejected.add(shifted(rejected_spans, cut.begin));
    const std::string texts =
        cat(chats_[0].rendered.text, std::string_view("\0", 1), chats_[1].rendered.text);
    end_document(record, cut.chosen_end - cut.begin + rejected_len, xxh3_64(texts), result);
  }

  const DocumentRules& rules_;
  text::ChatForm form_;
  const data::SetContent& content_;
  std::size_t seq_len_;
  const text::ChatTemplate& template_;
  text::ChatMask mask_;
  data::PairCutRule cut_rule_;
  text::ChatEncoder encoder_;
  text::ChatReader reader_;
  text::RenderOptions options_;
  UnwrittenFields unwritten_;
  std::vector<text::UnreadField> unwritten_fields_;
  std::string repaired_;
  std::vector<text::Conversation> conversations_;
  Chat chats_[2];
};

}  // namespace

std::unique_ptr<DocumentMaker> make_chat_documents(const text::Tokenizer& tokenizer,
                                                   const DocumentRules& rules) {
  return std::make_unique<ChatDocuments>(tokenizer, rules);
}

}  // namespace trireme::data_prep
