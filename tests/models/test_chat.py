"""Chat templates run as transformers runs them, in a sandbox, and fail with a reason."""

from datetime import datetime

import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from specdec_jax.models.chat import ChatTemplate

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": 'Say "hi" & <wave> ünïcode'},
    {"role": "assistant", "content": "hi", "tags": ["a", {"b": 1}]},
]

TEMPLATES = {
    "blocks are trimmed": """
    {%- for message in messages %}
        {% if loop.first %}
            {{ bos_token }}
        {% endif %}
    [{{ message['role'] }}] {{ message.content | trim }}
    {% endfor %}
    {% if add_generation_prompt %}>{% endif %}""",
    "json": "{{ messages | tojson }}{{ messages[2] | tojson(indent=2) }}",
    "loop control": "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
    "namespace": "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
    "date": "{{ strftime_now('%Y') }}",
    "tools": "{% if tools is not none %}tools{% endif %}{{ documents is defined and documents is none }}",
    "generation marks": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}",
}


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
def test_as_in_transformers(source, add_generation_prompt):
    got = ChatTemplate(source).render(MESSAGES, add_generation_prompt=add_generation_prompt, bos_token="<s>")
    want, _ = render_jinja_template(
        [MESSAGES], chat_template=source, add_generation_prompt=add_generation_prompt, bos_token="<s>"
    )
    assert got == want[0]


def test_the_date_may_be_given():
    template = ChatTemplate("{{ strftime_now('%d %b %Y') }}")
    assert template.render(MESSAGES, now=datetime(2024, 7, 26)) == "26 Jul 2024"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "refuses these messages .*roles must alternate"),
        ("{{ messages[0].content + 1 }}", "refuses these messages .TypeError"),
        ("{{ ''.__class__.__mro__ }}", "refuses these messages .SecurityError"),
        ("{{ messages.append(1) }}", "refuses these messages .SecurityError"),
        ("{{ messages[7].content }}", "refuses these messages .UndefinedError"),
    ],
)
def test_failures(source, message):
    with pytest.raises(ValueError, match=message):
        ChatTemplate(source).render(MESSAGES)


def test_malformed_template():
    with pytest.raises(ValueError, match="the chat template does not parse, at its line 2"):
        ChatTemplate("fine\n{% for %}")


@pytest.mark.parametrize("message", [{}, {"role": "user"}, {"content": "hello"}])
def test_malformed_message(message):
    with pytest.raises(ValueError, match=r"message 0 is .*; expected a mapping with 'role' and 'content'"):
        ChatTemplate("{{ messages }}").render([message])


BOMBS = [
    "{{ 'a' * 1500000000 }}",
    "{{ 1500000000 * [1] }}",
    "{{ 10 ** 100000000 }}",
    "{% set n = namespace(x=9) %}{% for i in range(60) %}{% set n.x = n.x * n.x %}{% endfor %}{{ n.x }}",
    "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x + n.x %}{% endfor %}{{ n.x }}",
    "{{ 'a' | center(1500000000) }}",
    "{{ 'a\nb' | indent(1500000000) }}",
    "{{ [1] | tojson(indent=1500000000) }}",
    "{{ [1] | batch(1500000000, 2) | list }}",
    "{{ 'a'.ljust(1500000000) }}",
    "{{ '%1500000000d' % 1 }}",
    "{{ '%*d' % (1500000000, 1) }}",
    "{{ '%1500000000d' | format(1) }}",
    "{{ '{:1500000000}'.format(1) }}",
    "{{ '{:{w}}'.format(1, w=1500000000) }}",
    "{% for i in range(99) %}{{ 'a' * 9999999 }}{% endfor %}",
]


@pytest.mark.parametrize("source", BOMBS)
def test_templates_that_would_fill_the_memory(source):
    with pytest.raises(ValueError, match=r"refuses these messages .SecurityError: it grows to .*; expected at most"):
        ChatTemplate(source).render(MESSAGES)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ when + 1 }} {{ when * 2 }} {{ when % 7 }} {{ 7 ** 3 }}", "1700000001 3400000000 6 343"),
        ("{{ when | tojson }} {{ '%5d' % when }} {{ '%s' | format(when) }}", "1700000000 1700000000 1700000000"),
        ("{{ '{} {:3}'.format(when, 1) }} {{ 'a'.ljust(3) }}|", "1700000000   1 a  |"),
    ],
)
def test_large_numbers_are_no_widths(source, text):
    assert ChatTemplate(source).render(MESSAGES, when=1700000000) == text
