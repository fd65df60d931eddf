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
