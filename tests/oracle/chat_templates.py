"""The chat templates as Jinja for chat_oracle.py, written independently from the descriptions of
the formats.

Every marker is a variable, so the same template can be rendered with markers that no text
contains. This is how the oracle knows what a forged marker in a message must not do. {{ A0 }}
and {{ A1 }} enclose the text of the assistant.
"""

TOOL_WORDS_BEFORE = ("# Tools\n\nYou may call one or more functions to assist with the user query.\n\n"
                     "You are provided with function signatures within <tools></tools> XML tags:\n<tools>")


def tool_words_after(marks):
    return ("\n</tools>\n\nFor each function call, return a json object with function name and arguments within "
            f"{marks['CALL0']}{marks['CALL1']} XML tags:\n{marks['CALL0']}\n"
            '{"name": <function-name>, "arguments": <args-json-object>}\n' + marks["CALL1"])


MARKS = {"S": "<|im_start|>", "E": "<|im_end|>", "CALL0": "<tool_call>", "CALL1": "</tool_call>", "RESULT0": "<tool_response>",
         "RESULT1": "</tool_response>", "THINK0": "<think>", "THINK1": "</think>", "OLD0": "<s>", "OLD1": "</s>",
         "HEAD0": "<|start_header_id|>", "HEAD1": "<|end_header_id|>", "TURN": "<|eot_id|>", "BEGIN": "<|begin_of_text|>"}

CALLS = """{%- for given in message.tool_calls or [] -%}
  {%- set call = given.function if given.function else given -%}
  {%- if content or not loop.first -%}{{ '\\n' }}{%- endif -%}
  {{ CALL0 + '\\n{"name": "' + call.name + '", "arguments": ' }}
  {%- if call.arguments is string -%}{{ call.arguments }}{%- else -%}{{ call.arguments | tojson }}{%- endif -%}
  {{ '}\\n' + CALL1 }}
{%- endfor -%}"""

# Position of the thoughts of an answer: in their own field, or inside the content.
THOUGHTS = """{%- set thought = '' -%}
{%- if message.reasoning_content is string -%}
  {%- set thought = message.reasoning_content -%}
{%- elif '</think>' in content -%}
  {%- set thought = content.split('</think>') | first -%}
  {%- set thought = thought.rstrip('\\n').split('<think>') | last -%}
  {%- set thought = thought.lstrip('\\n') -%}
  {%- set content = (content.split('</think>') | last).lstrip('\\n') -%}
{%- endif -%}"""
BLOCK = "{{ THINK0 + '\\n' + thought.strip('\\n') + '\\n' + THINK1 + '\\n\\n' + content.lstrip('\\n') }}"
PLAIN = "{{ content }}"


def chatml(default_system, answer, prompt):
    """ChatML with Qwen's tools. `answer` writes thoughts and content, `prompt` writes the text
    after the header of a generation prompt."""
    opening = """{%- set opens = messages[0].role == 'system' -%}
{%- if tools -%}
  {{ S + 'system\\n' }}{%- if opens -%}{{ messages[0].content + '\\n\\n' }}{%- endif -%}{{ TOOLS0 }}
  {%- for tool in tools -%}{{ '\\n' + (tool | tojson) }}{%- endfor -%}{{ TOOLS1 + E + '\\n' }}
{%- elif opens -%}
  {{ S + 'system\\n' + messages[0].content + E + '\\n' }}
{%- elif DEFAULT -%}
  {{ S + 'system\\n' + DEFAULT + E + '\\n' }}
{%- endif -%}""".replace("DEFAULT", repr(default_system))
    questions = """{%- set ns = namespace(last=messages | length - 1, searching=true) -%}
{%- for message in messages | reverse -%}
  {%- if ns.searching and message.role == 'user' and not (message.content.startswith('<tool_response>')
         and message.content.endswith('</tool_response>')) -%}
    {%- set ns.searching = false -%}{%- set ns.last = messages | length - loop.index -%}
  {%- endif -%}
{%- endfor -%}"""
    turns = """{%- for message in messages -%}
  {%- set content = message.content if message.content is string else '' -%}
  {%- if message.role == 'user' or (message.role == 'system' and not loop.first) -%}
    {{ S + message.role + '\\n' + content + E + '\\n' }}
  {%- elif message.role == 'assistant' -%}
    {{ S + 'assistant\\n' + A0 }}""" + answer + CALLS + """{{ E + A1 + '\\n' }}
  {%- elif message.role == 'tool' -%}
    {%- if loop.first or loop.previtem.role != 'tool' -%}{{ S + 'user' }}{%- endif -%}
    {{ '\\n' + RESULT0 + '\\n' + content + '\\n' + RESULT1 }}
    {%- if loop.last or loop.nextitem.role != 'tool' -%}{{ E + '\\n' }}{%- endif -%}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ S + 'assistant\\n' }}""" + prompt + "{%- endif -%}"
    return opening + questions + turns


EMPTY = "{{ THINK0 + '\\n\\n' + THINK1 + '\\n\\n' }}"
OFF_PROMPT = "{%- if enable_thinking is defined and enable_thinking is false -%}" + EMPTY + "{%- endif -%}"
V3_PROMPT = "{%- if open_thinking is defined and open_thinking is true -%}{{ THINK0 + '\\n' }}{%- else -%}" + EMPTY + "{%- endif -%}"
QWEN_ANSWER = (THOUGHTS + "{%- if loop.index0 > ns.last and (loop.last or thought) -%}" + BLOCK + "{%- else -%}" + PLAIN + "{%- endif -%}")
GIVEN_ANSWER = ("{%- if message.reasoning_content -%}{%- set thought = message.reasoning_content -%}" + BLOCK
                + "{%- else -%}" + PLAIN + "{%- endif -%}")

OLD_TURNS = """{%- for message in messages -%}
  {%- if message.role == 'user' -%}{{ OLD0 + 'user\\n' + message.content + OLD1 + '\\n' + OLD0 + 'assistant\\n' }}
  {%- elif message.role == 'assistant' -%}{{ A0 + (message.content or '') + OLD1 + A1 + '\\n' }}{%- endif -%}
{%- endfor -%}"""

TEMPLATES = {
    "minimind-v1": "{%- if messages[0].role == 'system' -%}{{ messages[0].content }}{%- endif -%}" + OLD_TURNS,
    "minimind-v2": "{{ OLD0 + 'system\\n' }}{%- if messages[0].role == 'system' -%}{{ messages[0].content }}{%- else -%}"
                   "{{ '你是 MiniMind，是一个有用的人工智能助手。' }}{%- endif -%}{{ OLD1 + '\\n' }}" + OLD_TURNS,
    "minimind-v2.5": chatml("You are a helpful assistant", PLAIN, OFF_PROMPT),
    "minimind-v3": chatml("", THOUGHTS + BLOCK, V3_PROMPT),
    "chatml": chatml("", GIVEN_ANSWER, ""),
    "qwen3": chatml("", QWEN_ANSWER, OFF_PROMPT),
    "llama3": """{{ BEGIN }}{%- for message in messages -%}
  {{ HEAD0 + message.role + HEAD1 + '\\n\\n' }}
  {%- if message.role == 'assistant' -%}{{ A0 + (message.content or '') | trim + TURN + A1 }}
  {%- else -%}{{ message.content | trim + TURN }}{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ HEAD0 + 'assistant' + HEAD1 + '\\n\\n' }}{%- endif -%}""",
    "plain": """{%- for message in messages -%}
  {%- if message.role == 'assistant' -%}{{ A0 + (message.content or '') + E + A1 + '\\n' }}
  {%- else -%}{{ message.content + '\\n' }}{%- endif -%}
{%- endfor -%}""",
}
