#include "text/chat/chatml.hpp"

namespace trireme::text {
namespace {

constexpr std::string_view kStart = "<|im_start|>";
constexpr std::string_view kEnd = "<|im_end|>";

std::string_view without_leading_lines(std::string_view text) {
  const std::size_t at = text.find_first_not_of('\n');
  return at == std::string_view::npos ? std::string_view() : text.substr(at);
}

std::string_view without_trailing_lines(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

/// An assistant message, split into thought and content.
struct Answer {
  std::string_view thought;
  std::string_view content;
};

Answer split_answer(const ChatMessage& message) {
  constexpr std::string_view kOpen = "<think>";
  constexpr std::string_view kClose = "</think>";
  if (message.reasoning) return {*message.reasoning, message.content};
  const std::string_view content = message.content;
  const std::size_t first = content.find(kClose);
  if (first == std::string_view::npos) return {{}, content};
  std::string_view thought = without_trailing_lines(content.substr(0, first));
  if (const std::size_t open = thought.rfind(kOpen); open != std::string_view::npos)
    thought.remove_prefix(open + kOpen.size());
  return {without_leading_lines(thought),
          without_leading_lines(content.substr(content.rfind(kClose) + kClose.size()))};
}

class ChatMl {
 public:
  ChatMl(const ChatMlStyle& style, const Conversation& conversation, const RenderOptions& options)
      : style_(style),
        messages_(conversation.messages),
        options_(options),
        last_question_(find_last_question()) {
    open(conversation.tools);
    for (std::size_t i = 0; i < messages_.size(); ++i) add(i);
    if (options.generation_prompt) ask();
  }

  RenderedChat out;

 private:
  void open(const std::vector<std::string>& tools) {
    const bool has_system = !messages_.empty() && messages_[0].role == Role::system;
    if (tools.empty() && !has_system && style_.default_system.empty()) return;
    out.fixed(kStart).fixed("system\n");
    if (has_system) out.content(messages_[0].content);
    if (!tools.empty()) {
      if (has_system) out.fixed("\n\n");
      out.fixed(kBeforeTools);
      for (const std::string& tool : tools) out.fixed("\n").content(tool);
      out.fixed(kAfterTools);
    } else if (!has_system) {
      out.fixed(style_.default_system);
    }
    out.turn_end(kEnd, "\n");
  }

  void add(std::size_t i) {
    const ChatMessage& message = messages_[i];
    switch (message.role) {
      case Role::system:
        if (i == 0) return;  // written by open()
        [[fallthrough]];
      case Role::user:
        out.fixed(kStart).fixed(role_name(message.role)).fixed("\n").content(message.content);
        out.turn_end(kEnd, "\n");
        return;
      case Role::assistant:
        return add_answer(i);
      case Role::tool:
        return add_result(i);
    }
  }

  void add_answer(std::size_t i) {
    const ChatMessage& message = messages_[i];
    out.header("<|im_start|>assistant\n");
    const std::size_t begin = out.text.size();
    const bool splits = style_.think == Thoughts::always || style_.think == Thoughts::qwen3;
    const Answer answer = splits ? split_answer(message)
                                 : Answer{message.reasoning ? std::string_view(*message.reasoning)
                                                            : std::string_view(),
                                          message.content};
    if (has_thoughts(i, answer)) {
      const std::string_view thought =
          without_leading_lines(without_trailing_lines(answer.thought));
      if (!(options_.drop_empty_think && thought.empty()))
        out.fixed(kOpenedThought).content(thought).fixed("\n</think>\n\n");
      add_content(without_leading_lines(answer.content));
    } else {
      add_content(answer.content);
    }
    bool first = true;
    for (const ToolCall& call : message.tool_calls) {
      if (!first || !answer.content.empty()) out.fixed("\n");
      first = false;
      out.fixed("<tool_call>\n{\"name\": \"").content(call.name).fixed("\", \"arguments\": ");
      out.content(call.arguments).fixed("}\n</tool_call>");
    }
    out.turn_end(kEnd, "\n");
    out.answer_since(begin, message);
  }

  [[nodiscard]] bool has_thoughts(std::size_t i, const Answer& answer) const {
    switch (style_.think) {
      case Thoughts::never:
        return false;
      case Thoughts::if_given:
        return !answer.thought.empty();
      case Thoughts::always:
        return true;
      case Thoughts::qwen3:
        return i > last_question_ && (i + 1 == messages_.size() || !answer.thought.empty());
    }
    return false;
  }

  void add_content(std::string_view content) {
    options_.drop_empty_think ? out.content_without(kEmptyThink, content) : out.content(content);
  }

  /// Consecutive tool results form one user turn.
  void add_result(std::size_t i) {
    if (i == 0 || messages_[i - 1].role != Role::tool) out.fixed(kStart).fixed("user");
    out.fixed("\n<tool_response>\n").content(messages_[i].content).fixed("\n</tool_response>");
    if (i + 1 == messages_.size() || messages_[i + 1].role != Role::tool) out.turn_end(kEnd, "\n");
  }

  void ask() {
    out.header("<|im_start|>assistant\n");
    if (!style_.prompt_has_thoughts) return;
    const bool thinks = options_.thinking.value_or(style_.prompt_thinks_by_default);
    if (!thinks) {
      out.fixed(kEmptyThink);
    } else if (!style_.prompt_thinks_by_default) {
      out.fixed(kOpenedThought);
    }
  }

  /// Returns the last user message that does not contain a tool result.
  [[nodiscard]] std::size_t find_last_question() const {
    for (std::size_t i = messages_.size(); i-- > 0;) {
      const std::string_view content = messages_[i].content;
      if (messages_[i].role == Role::user &&
          !(content.starts_with("<tool_response>") && content.ends_with("</tool_response>")))
        return i;
    }
    return messages_.size() - 1;
  }

  const ChatMlStyle& style_;
  const std::vector<ChatMessage>& messages_;
  const RenderOptions& options_;
  std::size_t last_question_;
};

}  // namespace

RenderedChat render_chatml(const ChatMlStyle& style, const Conversation& conversation,
                           const RenderOptions& options) {
  return std::move(ChatMl(style, conversation, options).out);
}

}  // namespace trireme::text
