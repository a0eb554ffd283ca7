"""A template with filters of lists, dicts and texts, and templates that Jinja2 refuses, for jinja_chat.py."""

EXPRESSIONS = [
    "['b', 'A', 'a', 'B', 'c'] | sort | join",
    "['b', 'A', 'a', 'B', 'c'] | sort(case_sensitive=true) | join",
    "['b', 'A', 'a', 'B', 'c'] | sort(true) | join",
    "['b', 'A', 'a', 'B', 'c'] | sort(reverse=true) | join",
    "['b', 'A', 'a', 'B', 'c'] | sort(true, true) | join",
    "[3, 1, 2.5, true] | sort",
    "rows | sort(attribute='n') | map(attribute='m') | join",
    "rows | sort(attribute='n', reverse=true) | map(attribute='m') | join",
    "rows | sort(attribute='n', case_sensitive=true) | map(attribute='m') | join",
    "rows | sort(attribute='n,m') | map(attribute='m') | join",
    "rows | sort(attribute='deep.0') | map(attribute='m') | join",
    "rows | sort(attribute='none') | map(attribute='m') | join",
    "rows | map(attribute='deep.1') | join",
    "rows | join(' ', attribute='deep.0')",
    "['a', 'A', 'b', 'B', 'a'] | unique | join",
    "['a', 'A', 'b', 'B', 'a'] | unique(true) | join",
    "[1, true, 1.0, 2, none, none] | unique | list",
    "rows | unique(attribute='n') | map(attribute='m') | join",
    "rows | unique(attribute='n', case_sensitive=true) | map(attribute='m') | join",
    "['É', 'é', 'z', 'Ж', 'ж', 'e'] | unique | sort | join",
    "members | dictsort | map('join') | join(' ')",
    "members | dictsort(true) | map('join') | join(' ')",
    "members | dictsort(false, 'value') | map('join') | join(' ')",
    "members | dictsort(by='value', reverse=true) | map('join') | join(' ')",
    "members | dictsort(reverse=true) | map('join') | join(' ')",
    "members | dictsort(case_sensitive=true, reverse=true) | map('join') | join(' ')",
    "\"foo_bar it's x-y (zed [q {r <s u.v \\u00a0w\\u3000x\" | title",
    "\"foo_bar it's x-y (zed [q {r <s u.v\".title()",
    "dict({'a': 1, 'b': 2}, a=3, d=4, c=5)",
    "dict(z=1, y=2)",
    "{'a': 1, 'b': 2, 'a': 3}",
    "messages | map(attribute='content') | unique | sort | join('|')",
    "messages | map(attribute='content') | sort(reverse=true) | join('|')",
    "messages | sort(attribute='role,content') | map(attribute='content') | join('|')",
    "messages | map(attribute='content') | map('title') | join('|')",
]

REFUSED = [
    "['a'] | sort(by='x')",
    "['a'] | sort(true, true, none, 1)",
    "['a', 1] | sort",
    "['a'] | unique(by='x')",
    "[[1], [1]] | unique | list",
    "members | dictsort(by='size')",
    "members | dictsort(true, 'key', true, 1)",
    "['a'] | dictsort",
]

BEGIN = """{%- set rows = [{'n': 'x', 'm': 3, 'deep': [2, 'q']}, {'n': 'X', 'm': 1, 'deep': [1, 'r']}, {'n': 'a', 'm': 2, 'deep': [2, 's']}] -%}
{%- set members = {'b': 1, 'A': 3, 'a': 2, 'B': 1} -%}
"""
CHAT = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"""


def filter_templates():
    """Yields (name, template, has generation blocks)."""
    yield "filters", BEGIN + "".join("{{ " + one + " }}\n" for one in EXPRESSIONS) + CHAT, True
    for one in REFUSED:
        yield "refused: " + one, BEGIN + "{{ " + one + " }}" + CHAT, True
