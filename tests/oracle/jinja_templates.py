"""Chat templates in the styles of published model families, written for jinja_chat.py.

«G» and «/G» stand around an answer. They become {% generation %} blocks in one variant of each
template, and disappear in the other.
"""

BASES = {}


def base(name, text):
    BASES[name] = text


base("chatml", """{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n'}}{% if message['role'] == 'assistant' %}«G»{{ message['content'] + '<|im_end|>' }}«/G»{{ '\n' }}{% else %}{{ message['content'] + '<|im_end|>' + '\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""")

base("chatml-default-system", """{% if messages[0].role != 'system' %}<|im_start|>system
You are a careful assistant.<|im_end|>
{% endif %}
{% for message in messages %}
    {% if message.role == 'assistant' %}
{{- '<|im_start|>assistant\n' }}«G»{{ message.content }}<|im_end|>«/G»

    {% else %}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
    {% endif %}
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
""")

base("qwen2.5-tools", """{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are a helpful model.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nThese functions exist, one per line in <tools></tools>:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nCall a function like this:\n<tool_call>\n{\\"name\\": <function-name>, \\"arguments\\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are a helpful model.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role + '\n' }}
        {%- if true %}«G»{{- message.content }}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>' }}«/G»{%- endif %}
        {{- '\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
""")

base("qwen3-thinking", """{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- elif '</think>' in content %}
            {%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' }}
        {%- if true %}«G»
        {%- if loop.index0 > ns.last_query_index and (loop.last or reasoning_content) %}
            {{- '<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' + content.lstrip('\n') }}
        {%- else %}
            {{- content }}
        {%- endif %}
        {{- '<|im_end|>' }}«/G»{%- endif %}
        {{- '\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}""")

base("llama2", """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate user/assistant') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}«G»{{ ' ' + content.strip() + ' ' + eos_token }}«/G»{% endif %}{% endfor %}""")

base("llama3", """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% if message['role'] == 'assistant' %}«G»{{ message['content'] | trim + '<|eot_id|>' }}«/G»{% else %}{{ message['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}""")

base("llama3.1-tools", """{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{{- "Today Date: " + date_string + "\n\n" }}
{{- system_message }}
{{- "<|eot_id|>" }}
{%- if tools_in_user_message and not tools is none %}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("There is no first user message for the tools") }}
    {%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "Choose one of these functions:\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}
{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
        {%- if message.role == 'assistant' %}«G»{{- message['content'] | trim + '<|eot_id|>' }}«/G»{%- else %}{{- message['content'] | trim + '<|eot_id|>' }}{%- endif %}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("Only one call at a time is possible") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {%- if true %}«G»{{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}«/G»{%- endif %}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is not string %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
""")

base("mistral-v1", """{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}«G»{{ message['content'] + eos_token + ' ' }}«/G»{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}""")

base("mistral-v3-tools", """{%- if messages[0]["role"] == "system" %}
    {%- set system_message = messages[0]["content"] %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set loop_messages = messages %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}
{%- set user_messages = loop_messages | selectattr("role", "equalto", "user") | list %}
{%- set ns = namespace() %}
{%- set ns.index = 0 %}
{%- for message in loop_messages %}
    {%- if not (message.role == "tool" or message.role == "tool_results" or (message.tool_calls is defined and message.tool_calls is not none)) %}
        {%- if (message["role"] == "user") != (ns.index % 2 == 0) %}
            {{- raise_exception("Roles must alternate") }}
        {%- endif %}
        {%- set ns.index = ns.index + 1 %}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in loop_messages %}
    {%- if message["role"] == "user" %}
        {%- if tools is not none and (message == user_messages[-1]) %}
            {{- "[AVAILABLE_TOOLS] [" }}
            {%- for tool in tools %}
                {%- set tool = tool.function %}
                {{- '{"type": "function", "function": {' }}
                {%- for key, val in tool.items() if key != "return" %}
                    {%- if val is string %}
                        {{- '"' + key + '": "' + val + '"' }}
                    {%- else %}
                        {{- '"' + key + '": ' + val|tojson }}
                    {%- endif %}
                    {%- if not loop.last %}
                        {{- ", " }}
                    {%- endif %}
                {%- endfor %}
                {{- "}}" }}
                {%- if not loop.last %}
                    {{- ", " }}
                {%- else %}
                    {{- "]" }}
                {%- endif %}
            {%- endfor %}
            {{- "[/AVAILABLE_TOOLS]" }}
        {%- endif %}
        {%- if loop.last and system_message is defined %}
            {{- "[INST] " + system_message + "\n\n" + message["content"] + "[/INST]" }}
        {%- else %}
            {{- "[INST] " + message["content"] + "[/INST]" }}
        {%- endif %}
    {%- elif message.tool_calls is defined and message.tool_calls is not none %}
        {%- if true %}«G»{{- "[TOOL_CALLS] [" }}
        {%- for tool_call in message.tool_calls %}
            {%- set out = tool_call.function|tojson %}
            {{- out[:-1] }}
            {{- ', "id": "call00000"}' }}
            {%- if not loop.last %}
                {{- ", " }}
            {%- else %}
                {{- "]" + eos_token }}
            {%- endif %}
        {%- endfor %}«/G»{%- endif %}
    {%- elif message["role"] == "assistant" %}
        {%- if true %}«G»{{- " " + message["content"]|trim + eos_token}}«/G»{%- endif %}
    {%- elif message["role"] == "tool_results" or message["role"] == "tool" %}
        {%- if message.content is defined and message.content.content is defined %}
            {%- set content = message.content.content %}
        {%- else %}
            {%- set content = message.content %}
        {%- endif %}
        {{- '[TOOL_RESULTS] {"content": ' + content|string + ", " }}
        {{- '"call_id": "call00000"}[/TOOL_RESULTS]' }}
    {%- else %}
        {{- raise_exception("Only user and assistant roles are supported") }}
    {%- endif %}
{%- endfor %}
""")

base("mistral-small", """{%- set default_system_message = "You are Small.\\nThe current date is 2026-01-01" %}
{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- if messages[0]['content'] is string %}
        {%- set system_message = messages[0]['content'] %}
    {%- else %}
        {%- set system_message = messages[0]['content'][0]['text'] %}
    {%- endif %}
    {%- set loop_messages = messages[1:] %}
{%- else %}
    {%- set system_message = default_system_message %}
    {%- set loop_messages = messages %}
{%- endif %}
{{- '[SYSTEM_PROMPT]' + system_message + '[/SYSTEM_PROMPT]' }}
{%- for message in loop_messages %}
    {%- if message['role'] == 'user' %}
        {%- if message['content'] is string %}
            {{- '[INST]' + message['content'] + '[/INST]' }}
        {%- else %}
            {{- '[INST]' }}
            {%- for block in message['content'] %}
                {%- if block['type'] == 'text' %}
                    {{- block['text'] }}
                {%- else %}
                    {{- raise_exception('Only text and image blocks are supported') }}
                {%- endif %}
            {%- endfor %}
            {{- '[/INST]' }}
        {%- endif %}
    {%- elif message['role'] == 'system' %}
        {{- '[SYSTEM_PROMPT]' + message['content'] + '[/SYSTEM_PROMPT]' }}
    {%- elif message['role'] == 'assistant' %}
        {%- if true %}«G»{{- message['content'] + eos_token }}«/G»{%- endif %}
    {%- else %}
        {{- raise_exception('Only user, system and assistant roles are supported!') }}
    {%- endif %}
{%- endfor %}""")

base("gemma", """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' }}{% if role == 'model' %}«G»{{ message['content'] | trim + '<end_of_turn>\n' }}«/G»{% else %}{{ message['content'] | trim + '<end_of_turn>\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}""")

base("gemma3", """{{ bos_token }}
{%- if messages[0]['role'] == 'system' -%}
    {%- if messages[0]['content'] is string -%}
        {%- set first_user_prefix = messages[0]['content'] + '

' -%}
    {%- else -%}
        {%- set first_user_prefix = messages[0]['content'][0]['text'] + '

' -%}
    {%- endif -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set first_user_prefix = "" -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{%- for message in loop_messages -%}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception("Conversation roles must alternate user/assistant/user/assistant/...") }}
    {%- endif -%}
    {%- if (message['role'] == 'assistant') -%}
        {%- set role = "model" -%}
    {%- else -%}
        {%- set role = message['role'] -%}
    {%- endif -%}
    {{ '<start_of_turn>' + role + '
' + (first_user_prefix if loop.first else "") }}
    {%- if role == 'model' -%}«G»{{ message['content'] | trim }}{{ '<end_of_turn>
' }}«/G»
    {%- elif message['content'] is string -%}
        {{ message['content'] | trim }}{{ '<end_of_turn>
' }}
    {%- elif message['content'] is iterable -%}
        {%- for item in message['content'] -%}
            {%- if item['type'] == 'image' -%}
                {{ '<start_of_image>' }}
            {%- elif item['type'] == 'text' -%}
                {{ item['text'] | trim }}
            {%- endif -%}
        {%- endfor -%}
    {%- else -%}
        {{ raise_exception("Invalid content type") }}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
    {{'<start_of_turn>model
'}}
{%- endif -%}
""")

base("phi3", """{% for message in messages %}{% if message['role'] == 'system' %}{{'<|system|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'user' %}{{'<|user|>\n' + message['content'] + '<|end|>\n'}}{% elif message['role'] == 'assistant' %}{{'<|assistant|>\n'}}«G»{{ message['content'] + '<|end|>\n'}}«/G»{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}""")

base("phi4", """{% for message in messages %}{% if (message['role'] == 'system') %}{{'<|im_start|>system<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'user') %}{{'<|im_start|>user<|im_sep|>' + message['content'] + '<|im_end|>'}}{% elif (message['role'] == 'assistant') %}{{'<|im_start|>assistant<|im_sep|>'}}«G»{{ message['content'] + '<|im_end|>'}}«/G»{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}""")

base("phi4-mini-tools", """{% for message in messages %}{% if message['role'] == 'system' and tools is defined and tools is not none %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|tool|>' + tools | tojson + '<|/tool|>' + '<|end|>' }}{% elif message['role'] == 'assistant' %}<|assistant|>«G»{{ message['content'] }}<|end|>«/G»{% else %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}""")

base("zephyr", """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
' }}«G»{{ message['content'] + eos_token }}«/G»

{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}""")

base("deepseek-v2", """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ 'User: ' + message['content'] + '\n\n' }}{% elif message['role'] == 'assistant' %}{{ 'Assistant: ' }}«G»{{ message['content'] + eos_token }}«/G»{% elif message['role'] == 'system' %}{{ message['content'] + '\n\n' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}""")

base("deepseek-v3", """{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}{% set ns = namespace(is_first=false, is_tool=false, is_output_first=true, system_prompt='', is_first_sp=true) %}{%- for message in messages %}{%- if message['role'] == 'system' %}{%- if ns.is_first_sp %}{% set ns.system_prompt = ns.system_prompt + message['content'] %}{% set ns.is_first_sp = false %}{%- else %}{% set ns.system_prompt = ns.system_prompt + '\n\n' + message['content'] %}{%- endif %}{%- endif %}{%- endfor %}{{ bos_token }}{{ ns.system_prompt }}{%- for message in messages %}{%- if message['role'] == 'user' %}{%- set ns.is_tool = false -%}{{'<\uff5cUser\uff5c>' + message['content']}}{%- endif %}{%- if message['role'] == 'assistant' and message['tool_calls'] is defined and message['tool_calls'] is not none %}{%- set ns.is_tool = false -%}{{'<\uff5cAssistant\uff5c>'}}«G»{%- for tool in message['tool_calls'] %}{%- if not loop.first %}{{'\n'}}{%- endif %}{{'<\uff5ctool_call\uff5c>' + tool['function']['name'] + '\n```json\n' + tool['function']['arguments']|tojson + '\n```'}}{%- endfor %}{{'<\uff5cend\uff5c>'}}«/G»{%- elif message['role'] == 'assistant' %}{%- if ns.is_tool %}{{'<\uff5ctool_end\uff5c>'}}{%- set ns.is_tool = false -%}{%- else %}{{'<\uff5cAssistant\uff5c>'}}{%- endif %}{% set content = message['content'] %}{% if '</think>' in content %}{% set content = content.split('</think>')[-1] %}{% endif %}«G»{{ content + '<\uff5cend\uff5c>'}}«/G»{%- endif %}{%- if message['role'] == 'tool' %}{%- set ns.is_tool = true -%}{{'<\uff5ctool_out\uff5c>' + message['content'] + '<\uff5ctool_out_end\uff5c>'}}{%- endif %}{%- endfor -%}{% if ns.is_tool %}{{'<\uff5ctool_end\uff5c>'}}{% endif %}{% if add_generation_prompt and not ns.is_tool %}{{'<\uff5cAssistant\uff5c>'}}{% endif %}""")

base("command-r", """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = messages[0]['content'] %}{% elif false == true %}{% set loop_messages = messages %}{% set system_message = 'You are Command.' %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}{% if system_message != false %}{{ '<|START|><|SYSTEM|>' + system_message + '<|END|>' }}{% endif %}{% for message in loop_messages %}{% set content = message['content'] %}{% if message['role'] == 'user' %}{{ '<|START|><|USER|>' + content.strip() + '<|END|>' }}{% elif message['role'] == 'assistant' %}{{ '<|START|><|CHATBOT|>' }}«G»{{ content.strip() + '<|END|>' }}«/G»{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|START|><|CHATBOT|>' }}{% endif %}""")

base("command-r-macros", """{%- macro json_to_type(json_spec) %}
{%- set basic_type_map = {
    "string": "str",
    "number": "float",
    "integer": "int",
    "boolean": "bool"
} %}
{%- if basic_type_map[json_spec.type] is defined %}
    {{- basic_type_map[json_spec.type] }}
{%- elif json_spec.type == "array" %}
    {{- "List[" + json_to_type(json_spec.get('items', {})) + "]"}}
{%- elif json_spec.type is iterable and json_spec.type is not string %}
    {{- "Union[" }}
    {%- for t in json_spec.type %}
      {{- json_to_type({"type": t}) }}
      {%- if not loop.last %}{{- "," }}{%- endif %}
    {%- endfor %}
    {{- "]" }}
{%- else %}
    {{- "Any" }}
{%- endif %}
{%- endmacro %}
{{- bos_token }}
{%- if tools is not none and tools | length > 0 %}
{{- '<|START|><|SYSTEM|>' }}
{%- for tool in tools %}
{{- '\n```python\ndef ' + tool.function.name + '(' }}
{%- for name, fields in (tool.function.parameters.properties or {}).items() %}
{%- if loop.index > 1 %}{{- ', ' }}{% endif -%}
{{- name + ': ' }}
{%- if not name in tool.function.parameters.required %}{{- 'Optional[' + json_to_type(fields) + '] = None' }}{%- else %}{{- json_to_type(fields) }}{%- endif %}
{%- endfor %}
{{- '):\n    \"\"\"' + tool.function.description | default('') + '\"\"\"\n```' }}
{%- endfor %}
{{- '<|END|>' }}
{%- endif %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{{- '<|START|><|CHATBOT|>' }}{% if true %}«G»{{ message.content }}{% for call in message.tool_calls | default([]) %}{{ '\nAction: ' ~ call.function.name ~ ' ' ~ call.function.arguments | tojson(indent=2) }}{% endfor %}<|END|>«/G»{% endif %}
{%- else %}
{{- '<|START|><|' + message.role | upper + '|>' + message.content + '<|END|>' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|START|><|CHATBOT|>' }}{%- endif %}""")

base("olmo2", """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'system' %}{{ '<|system|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] + '\n' }}{% elif message['role'] == 'assistant' %}{{ '<|assistant|>\n' }}{% if not loop.last %}«G»{{ message['content'] + eos_token + '\n' }}«/G»{% else %}«G»{{ message['content'] + eos_token }}«/G»{% endif %}{% endif %}{% if loop.last and add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %}{% endfor %}""")

base("smollm3", """{# ───── defaults ───── #}
{%- if enable_thinking is not defined -%}
{%- set enable_thinking = true -%}
{%- endif -%}
{%- set reasoning_mode = "/think" if enable_thinking else "/no_think" -%}
{{- "<|im_start|>system\n" -}}
{%- if messages[0].role == "system" -%}
{%- set system_message = messages[0].content -%}
{%- if "/no_think" in system_message -%}
{%- set reasoning_mode = "/no_think" -%}
{%- endif -%}
{%- set custom_instructions = system_message.replace("/no_think", "").replace("/think", "").rstrip() -%}
{%- endif -%}
{{- "## Metadata\n\nReasoning Mode: " + reasoning_mode + "\n\n" -}}
{%- if custom_instructions -%}
{{- "## Custom Instructions\n\n" + custom_instructions + "\n\n" -}}
{%- endif -%}
{{- "<|im_end|>\n" -}}
{%- for message in messages -%}
{%- set content = message.content if message.content is string else "" -%}
{%- if message.role == "user" -%}
{{ "<|im_start|>" + message.role + "\n"  + content + "<|im_end|>\n" }}
{%- elif message.role == "assistant" -%}
{{ "<|im_start|>assistant\n" }}
{%- if true -%}«G»
{%- if reasoning_mode == "/think" -%}
{{ content.lstrip("\n") + "<|im_end|>" }}
{%- else -%}
{{ "<think>\n\n</think>\n" + content.lstrip("\n") + "<|im_end|>" }}
{%- endif -%}
«/G»{%- endif -%}
{{ "\n" }}
{%- elif message.role == "tool" -%}
{{ "<|im_start|>" + "user\n"  + content + "<|im_end|>\n" }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
{%- if reasoning_mode == "/think" -%}
{{ "<|im_start|>assistant\n" }}
{%- else -%}
{{ "<|im_start|>assistant\n" + "<think>\n\n</think>\n"  }}
{%- endif -%}
{%- endif -%}
""")

base("vicuna", """{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + ' ' %}{% set rest = messages[1:] %}{% else %}{% set system = 'A chat between a user and an assistant. ' %}{% set rest = messages %}{% endif %}{{ bos_token + system }}{% for m in rest %}{% if m.role == 'user' %}USER: {{ m.content }} {% elif m.role == 'assistant' %}ASSISTANT: «G»{{ m.content }}{{ eos_token }}«/G»{% endif %}{% endfor %}{% if add_generation_prompt %}ASSISTANT:{% endif %}""")

base("alpaca", """{%- for message in messages -%}
{%- if message['role'] == 'user' -%}
### Instruction:
{{ message['content'].strip() }}

{% elif message['role'] == 'assistant' -%}
### Response:
«G»{{ message['content'].strip() }}{{ eos_token }}«/G»

{% elif message['role'] == 'system' -%}
{{ message['content'].strip() }}

{% endif -%}
{%- endfor -%}
{% if add_generation_prompt %}
### Response:
{% endif %}""")

base("granite", """{%- if messages[0]['role'] == 'system' %}
 {%- set system_message = messages[0]['content'] %}
 {%- set loop_messages = messages[1:] %}
{%- else %}
 {%- set system_message = "Knowledge Cutoff Date: April 2024.\nYou are Rock." %}
 {%- if tools and documents %}
  {%- set system_message = system_message + "\nYou have tools and documents." %}
 {%- elif tools %}
  {%- set system_message = system_message + "\nYou have tools." %}
 {%- endif %}
 {%- set loop_messages = messages %}
{%- endif %}
{{- '<|role|>system<|end_role|>' + system_message + eos_token + '\n' }}
{%- if tools %}
 {{- '<|role|>tools<|end_role|>' }}
 {{- tools | tojson(indent=2) }}
 {{- eos_token + '\n' }}
{%- endif %}
{%- for message in loop_messages %}
 {{- '<|role|>' + message['role'] + '<|end_role|>' }}
 {%- if message['role'] == 'assistant' %}«G»{{- message['content'] + eos_token }}«/G»{%- else %}{{- message['content'] + eos_token }}{%- endif %}
 {{- '\n' }}
 {%- if loop.last and add_generation_prompt %}
 {{- '<|role|>assistant<|end_role|>' }}
 {%- endif %}
{%- endfor %}""")

base("internlm2", """{{ bos_token }}{% for message in messages %}{{'<|im_start|>' ~ message.role ~ '\n'}}{% if message.role == "assistant" %}«G»{{ message.content ~ '<|im_end|>' }}«/G»{{'\n'}}{% else %}{{ message.content ~ '<|im_end|>' ~ '\n'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""")

base("hermes-set-blocks", """{%- set head %}<|im_start|>system
{% if tools %}You may call {{ tools | map(attribute='function.name') | join(', ') }}.{% else %}You have no tools.{% endif %}
<|im_end|>
{% endset %}
{{- head }}
{%- for message in messages if message.role != 'system' %}
{%- if message.role == 'assistant' %}
{{- '<|im_start|>assistant\n' }}{% if true %}«G»{{ message.content }}{% for call in message.tool_calls or [] %}
<tool_call>
{{ call.function | tojson }}
</tool_call>
{%- endfor %}<|im_end|>«/G»{% endif %}
{{- '\n' }}
{%- else %}
{{- '<|im_start|>' ~ message.role ~ '\n' ~ message.content ~ '<|im_end|>\n' }}
{%- endif %}
{%- else %}
{{- raise_exception('no messages') }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}""")

base("loop-controls", """{{ bos_token }}{%- set counts = {'user': 0, 'assistant': 0} -%}{%- for message in messages %}{%- if message.role == 'tool' %}{%- continue %}{%- endif %}{%- if loop.index > 9 %}{%- break %}{%- endif %}
[{{ loop.index }}/{{ loop.length }} {{ loop.revindex }} {{ loop.first }} {{ loop.cycle('a', 'b') }} {{ loop.previtem.role if loop.previtem is defined else '-' }}>{{ loop.nextitem.role | default('end') }}] {{ message.role | title }}: {% if message.role == 'assistant' %}«G»{{ message.content | trim }}{{ eos_token }}«/G»{% else %}{{ message.content[:40] | trim }}{{ message.content | length }}{% endif %}{%- endfor %}{%- if add_generation_prompt %}{{ '\nAssistant: ' }}{%- endif %}""")

base("arithmetic", """{%- set ns = namespace(total=0, words=[]) -%}{%- for message in messages -%}{%- set ns.total = ns.total + message.content | length -%}{%- set ns.words = ns.words + message.content.split()[:2] -%}{%- endfor -%}<|{{ ns.total // 3 }} {{ ns.total % 7 }} {{ ns.total / 4 }} {{ 2 ** 3 }} {{ -ns.total }} {{ ns.words | length }}|>{%- for i in range(0, messages | length, 1) -%}{%- set message = messages[i] -%}{{ '\n' ~ i ~ ' ' ~ message['role'] ~ ': ' }}{%- if message['role'] == 'assistant' -%}{%- if true -%}«G»{{- message['content'] ~ eos_token -}}«/G»{%- endif -%}{%- else -%}{{ message['content'] | replace('a', 'A') | indent(2) }}{%- endif -%}{%- endfor -%}{%- if add_generation_prompt -%}{{ '\n' ~ (messages | length) ~ ' assistant: ' }}{%- endif -%}""")

base("raw-and-tests", """{# a comment #}{% raw %}{{ not a tag }} {% neither %}{% endraw %}{{ bos_token }}
{% for message in messages %}
  {%- if message.role in ['user', 'system'] and message.content is not none and message.content is string %}
  <{{ message.role }} {{ loop.index is odd }} {{ loop.index is divisibleby 3 }}>{{ message.content | upper | lower | first | default('?') }}{{ message.content | last | default('!', true) }}
  {%- elif message.role is eq 'assistant' %}
  <assistant {{ message.tool_calls is defined }}>«G»{{ message.content }}{{ eos_token }}«/G»
  {%- endif %}

{% endfor %}
{{ messages | map(attribute='role') | unique | sort | join('+') }} {{ messages | rejectattr('role', 'equalto', 'user') | list | length }} {{ (messages | first).role ~ (messages | last)['role'] }}
""")

base("openchat", """{{ bos_token }}{% for message in messages %}{% if message['role'] == 'assistant' %}{{ 'GPT4 Correct Assistant: ' }}«G»{{ message['content'] + '<|end_of_turn|>'}}«/G»{% else %}{{ 'GPT4 Correct ' + message['role'].title() + ': ' + message['content'] + '<|end_of_turn|>'}}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ 'GPT4 Correct Assistant:' }}{% endif %}""")


def templates():
    """Returns (name, template, has generation blocks) of two variants of each template."""
    for name, text in BASES.items():
        yield name, text.replace("«G»", "").replace("«/G»", ""), False
        yield name + "+generation", text.replace("«G»", "{% generation %}").replace("«/G»", "{% endgeneration %}"), True
