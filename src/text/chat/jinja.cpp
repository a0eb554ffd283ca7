#include "core/error.hpp"
#include "text/chat/chatml.hpp"
#include "text/chat/header_templates.hpp"

namespace trireme::text {
namespace {

/// Returns `text` as a string literal of Jinja.
std::string jinja_string(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
      continue;
    }
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

/// Returns `text` with each `name` replaced by `value`.
std::string with(std::string text, std::string_view name, const std::string& value) {
  for (std::size_t at = 0; (at = text.find(name, at)) != std::string::npos; at += value.size())
    text.replace(at, name.size(), value);
  return text;
}

std::string jinja_of_opening(const ChatMlStyle& style) {
  std::string text = R"({%- set opens = messages and messages[0].role == 'system' %}
{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if opens %}
        {{- messages[0].content + '\n\n' }}
    {%- endif %}
    {{- BEFORE_TOOLS }}
    {%- for tool in tools %}
        {{- '\n' + (tool | tojson) }}
    {%- endfor %}
    {{- AFTER_TOOLS + '<|im_end|>\n' }}
{%- elif opens %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
)";
  if (!style.default_system.empty())
    text += "{%- else %}\n    {{- '<|im_start|>system\\n' + DEFAULT + '<|im_end|>\\n' }}\n";
  text += "{%- endif %}\n";
  text = with(text, "BEFORE_TOOLS", jinja_string(kBeforeTools));
  text = with(text, "AFTER_TOOLS", jinja_string(kAfterTools));
  return with(text, "DEFAULT", jinja_string(style.default_system));
}

/// Finds the last user message without a tool result. In Qwen3, only answers after this message
/// have thoughts.
constexpr const char* kFindQuestion =
    R"({%- set ns = namespace(last=messages | length - 1, searching=true) %}
{%- for message in messages | reverse %}
    {%- if ns.searching and message.role == 'user' and not (message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.searching = false %}
        {%- set ns.last = messages | length - loop.index %}
    {%- endif %}
{%- endfor %}
)";

/// Sets `thought` and `content`: both from the message, or the thought cut out of the content.
constexpr const char* kSplitAnswer = R"(        {%- set thought = '' %}
        {%- if message.reasoning_content is string %}
            {%- set thought = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
)";

std::string jinja_of_answer(Thoughts think) {
  constexpr const char* kBoth =
      "{{- '<think>\\n' + thought.strip('\\n') + '\\n</think>\\n\\n' + content.lstrip('\\n') }}\n";
  const auto where = [&](const char* condition) {
    return formatted(
        "        {{%- if {} %}}\n            {}        {{%- else %}}\n            {{{{- content "
        "}}}}\n        {{%- endif %}}\n",
        condition, kBoth);
  };
  switch (think) {
    case Thoughts::never:
      return "        {{- content }}\n";
    case Thoughts::if_given:
      return "        {%- set thought = message.reasoning_content or '' %}\n" + where("thought");
    case Thoughts::always:
      return cat(kSplitAnswer, "        ", kBoth);
    case Thoughts::qwen3:
      return kSplitAnswer + where("loop.index0 > ns.last and (loop.last or thought)");
  }
  return "";
}

constexpr const char* kTurns = R"({%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\n' }}
ANSWER        {%- for given in message.tool_calls or [] %}
            {%- set tool_call = given.function if given.function else given %}
            {%- if content or not loop.first %}
                {{- '\n' }}
            {%- endif %}
            {{- '<tool_call>\n{"name": "' + tool_call.name + '", "arguments": ' }}
            {%- if tool_call.arguments is string %}
                {{- tool_call.arguments }}
            {%- else %}
                {{- tool_call.arguments | tojson }}
            {%- endif %}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' + content + '\n</tool_response>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
)";

/// MiniMind has the variable open_thinking, Qwen enable_thinking. Both are accepted.
std::string jinja_of_prompt(const ChatMlStyle& style) {
  std::string text = "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n";
  if (style.prompt_has_thoughts && style.prompt_thinks_by_default) {
    text +=
        R"(    {%- if (enable_thinking is defined and enable_thinking is false) or (open_thinking is defined and open_thinking is false) %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
)";
  } else if (style.prompt_has_thoughts) {
    text +=
        R"(    {%- if (open_thinking is defined and open_thinking is true) or (enable_thinking is defined and enable_thinking is true) %}
        {{- '<think>\n' }}
    {%- else %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
)";
  }
  return text + "{%- endif %}\n";
}

/// The turns of minimind-v1 and -v2: a user turn ends with the header of the answer.
constexpr const char* kOldTurns = R"({%- for message in messages %}
    {%- if message.role == 'user' %}
        {{- '<s>user\n' + message.content + '</s>\n<s>assistant\n' }}
    {%- elif message.role == 'assistant' %}
        {{- (message.content or '') + '</s>\n' }}
    {%- endif %}
{%- endfor %}
)";

}  // namespace

std::string chatml_jinja(const ChatMlStyle& style) {
  return cat(jinja_of_opening(style), style.think == Thoughts::qwen3 ? kFindQuestion : "",
             with(kTurns, "ANSWER", jinja_of_answer(style.think)), jinja_of_prompt(style));
}

std::string minimind_v1_jinja() {
  return cat(
      "{%- if messages and messages[0].role == 'system' %}\n    {{- messages[0].content }}\n"
      "{%- endif %}\n",
      kOldTurns);
}

std::string minimind_v2_jinja() {
  return cat(
      "{{- '<s>system\\n' }}\n{%- if messages and messages[0].role == 'system' %}\n"
      "    {{- messages[0].content }}\n{%- else %}\n    {{- ",
      jinja_string(kMinimindV2System), " }}\n{%- endif %}\n{{- '</s>\\n' }}\n", kOldTurns);
}

std::string llama3_jinja() {
  return R"({{- bos_token if bos_token is defined and bos_token else '<|begin_of_text|>' }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
    {{- (message.content or '') | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
)";
}

std::string plain_jinja() {
  return R"({%- for message in messages %}
    {%- if message.role == 'assistant' %}
        {{- (message.content or '') + (eos_token if eos_token is defined and eos_token else '') + '\n' }}
    {%- else %}
        {{- message.content + '\n' }}
    {%- endif %}
{%- endfor %}
)";
}

}  // namespace trireme::text
