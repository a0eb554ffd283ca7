#include "data_prep/chat_documents.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/hash.hpp"
#include "data/schema.hpp"
#include "text/chat/chat_encoder.hpp"
#include "text/chat/chat_reader.hpp"
#include "text/chat/chat_targets.hpp"

namespace trireme {
namespace {

/// A chat ready to be stored.
struct Chat {
  RenderedChat rendered;
  EncodedChat encoded;
};

std::vector<Span> to_spans(const std::vector<TokenSpan>& spans) {
  std::vector<Span> result;
  for (const TokenSpan& span : spans) result.push_back({span.begin, span.end});
  return result;
}

/// The spans after `cut` tokens at the beginning are gone; token 0 is no target.
std::vector<Span> shifted(const std::vector<Span>& spans, std::size_t cut) {
  std::vector<Span> result;
  for (const Span& span : spans) {
    const std::size_t begin = std::max<std::size_t>(span.begin, cut + 1);
    if (begin < span.end) {
      result.push_back(
          {static_cast<std::uint32_t>(begin - cut), static_cast<std::uint32_t>(span.end - cut)});
    }
  }
  return result;
}

/// How often `part` is in the texts of a conversation.
std::uint64_t count_in(const Conversation& conversation, std::string_view part) {
  std::uint64_t sum = 0;
  for (const std::string& tool : conversation.tools) sum += occurrences(part, tool);
  for (const ChatMessage& message : conversation.messages) {
    sum += occurrences(part, message.content);
    if (message.reasoning) sum += occurrences(part, *message.reasoning);
    for (const ToolCall& call : message.tool_calls)
      sum += occurrences(part, call.name) + occurrences(part, call.arguments);
  }
  return sum;
}

class ChatDocuments : public DocumentMaker {
 public:
  ChatDocuments(const Tokenizer& tokenizer, const PackConfig& config)
      : DocumentMaker(tokenizer, config),
        config_(config.chat),
        pairs_(config.kind == schema::kKindDpo),
        seq_len_(static_cast<std::size_t>(config.seq_len)),
        on_bad_text_(config.on_bad_text),
        template_(chat_template(config.chat.format)),
        mask_(parse_chat_mask(config.chat.mask)),
        encoder_(tokenizer, parse_special_in_content(config.chat.special_in_content)),
        reader_(pairs_ ? ChatForm::pair : ChatForm::conversation) {
    if (const auto id = tokenizer.bos_id()) options_.begin_token = tokenizer.token_bytes(*id);
    if (const auto id = tokenizer.eos_id()) options_.end_token = tokenizer.token_bytes(*id);
  }

  void take(const Line& line, std::uint32_t file, BlockResult& result) override {
    const auto parse = [&](const char* json, std::size_t size) {
      std::optional<LineProblem> problem;
      if (auto found = reader_.read(json, size, conversations_))
        problem = LineProblem{std::move(found->reason), found->bad_text};
      return problem;
    };
    const auto count = [&](std::string_view part) {
      std::uint64_t sum = 0;
      for (const Conversation& conversation : conversations_) sum += count_in(conversation, part);
      return sum;
    };
    const TextRecord record = judge_line(line, on_bad_text_, repaired_, parse, count);
    if (!is_record(record, line, file, result)) return;
    for (std::int64_t copy = 0; copy < config_.copies; ++copy) {
      ChatDraw draw{file, line.offset, static_cast<std::uint32_t>(copy), 0};
      for (std::uint32_t side = 0; side < conversations_.size(); ++side) {
        draw.side = side;
        if (const auto forged = make(conversations_[side], draw, chats_[side])) {
          return add_bad(line, file, cat("a message holds the token ", *forged), result);
        }
      }
      pairs_ ? add_pair(line, result) : add_conversation(line, result);
    }
  }

 private:
  std::optional<std::string> make(const Conversation& given, const ChatDraw& draw, Chat& chat) {
    options_.drop_empty_think = drops_empty_think(config_.augment, draw);
    if (!pairs_ && config_.augment.add_system > 0) {
      Conversation changed = given;
      add_system_prompt(config_.augment, draw, changed);
      chat.rendered = template_.render(changed, options_);
    } else {
      chat.rendered = template_.render(given, options_);
    }
    return encoder_.encode(chat.rendered, chat.encoded);
  }

  [[nodiscard]] std::vector<Span> targets(const Chat& chat, std::size_t num_kept) const {
    return to_spans(chat_targets(chat.rendered, chat.encoded, mask_, template_.search, num_kept));
  }

  void add_conversation(const Line& line, BlockResult& result) {
    const Chat& chat = chats_[0];
    const std::size_t kept = std::min(seq_len_, chat.encoded.ids.size());
    const std::vector<Span> spans = targets(chat, kept);
    if (spans.empty()) {
      ++result.counts.dropped;
      return;
    }
    if (kept < chat.encoded.ids.size()) ++result.counts.truncated;
    add_tokens(std::span(chat.encoded.ids).first(kept), result);
    result.loss.add(spans);
    end_document(line, kept, xxh3_64(chat.rendered.text), result);
  }

  void add_pair(const Line& line, BlockResult& result) {
    const std::span<const std::uint32_t> chosen = chats_[0].encoded.ids;
    const std::span<const std::uint32_t> rejected = chats_[1].encoded.ids;
    const auto differ =
        std::mismatch(chosen.begin(), chosen.end(), rejected.begin(), rejected.end());
    const auto prompt = static_cast<std::size_t>(differ.first - chosen.begin());
    const std::size_t longer = std::max(chosen.size(), rejected.size());
    const std::size_t cut = longer > seq_len_ ? longer - seq_len_ : 0;
    const std::vector<Span> chosen_spans = shifted(targets(chats_[0], chosen.size()), cut);
    const std::vector<Span> rejected_spans = shifted(targets(chats_[1], rejected.size()), cut);
    const bool equal = prompt == chosen.size() && prompt == rejected.size();
    if (equal || (cut != 0 && cut >= prompt) || chosen_spans.empty() || rejected_spans.empty()) {
      ++result.counts.dropped;
      return;
    }
    if (cut != 0) ++result.counts.truncated;
    add_tokens(chosen.subspan(cut), result);  // prompt and answer
    add_tokens(rejected.subspan(prompt), result);
    PairTable& pairs = result.pairs;
    pairs.prompt_len.push_back(static_cast<std::uint32_t>(prompt - cut));
    pairs.chosen_len.push_back(static_cast<std::uint32_t>(chosen.size() - prompt));
    pairs.rejected_len.push_back(static_cast<std::uint32_t>(rejected.size() - prompt));
    pairs.chosen.add(chosen_spans);
    pairs.rejected.add(rejected_spans);
    const std::string texts =
        cat(chats_[0].rendered.text, std::string_view("\0", 1), chats_[1].rendered.text);
    end_document(line, chosen.size() - cut + rejected.size() - prompt, xxh3_64(texts), result);
  }

  const ChatConfig& config_;
  bool pairs_;
  std::size_t seq_len_;
  OnBadText on_bad_text_;
  const ChatTemplate& template_;
  ChatMask mask_;
  ChatEncoder encoder_;
  ChatReader reader_;
  RenderOptions options_;
  std::string repaired_;
  std::vector<Conversation> conversations_;
  Chat chats_[2];
};

}  // namespace

std::unique_ptr<DocumentMaker> make_chat_documents(const Tokenizer& tokenizer,
                                                   const PackConfig& config) {
  return std::make_unique<ChatDocuments>(tokenizer, config);
}

}  // namespace trireme
