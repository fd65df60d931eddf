"""Files of text as editors leave them."""

import pytest

from specdec_jax.training.data import from_file
from specdec_jax.training.samples import DataError, Sample, read_samples, write_samples


@pytest.mark.parametrize(
    ("line", "expected"),
    [('{"text": "w5 w6"}', ([Sample([], [5, 6, 0])], [])), ('{"prompt": "w5"}', ([], [[1, 5, 0, 2]]))],
)
def test_a_mark_at_the_beginning_is_no_text(line, expected, tmp_path, tiny_target):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + line.encode())
    assert from_file(path, tiny_target) == expected


@pytest.mark.parametrize("kind", ["text", "prompt"])
@pytest.mark.parametrize("number", [1, 2, 3000])
def test_a_byte_that_is_no_text_is_named_with_its_line(kind, number, tmp_path, tiny_target):
    """However late it comes."""
    path = tmp_path / "lines.jsonl"
    lines = [f'{{"{kind}": "w5 w6"}}'.encode()] * 3001
    lines[number - 1] = f'{{"{kind}": "w5 caf'.encode() + b'\xe9"}'  # as Latin-1 writes it
    path.write_bytes(b"\n".join(lines))
    where = "cannot read .*lines.jsonl" if number == 1 else rf"lines.jsonl:{number} is not UTF-8"
    with pytest.raises(DataError, match=rf"{where} \('utf-8' codec can't decode byte 0xe9"):
        from_file(path, tiny_target)


@pytest.mark.parametrize("kind", ["text", "prompt"])
def test_half_a_character_is_named_with_its_line(kind, tmp_path, tiny_target):
    path = tmp_path / "lines.jsonl"
    path.write_text(f'{{"{kind}": "w5"}}\n{{"{kind}": "w5 \\ud800"}}\n')
    with pytest.raises(DataError, match=rf"lines.jsonl:2 has a lone surrogate at character 3 of its {kind}; expected"):
        from_file(path, tiny_target)


def test_half_a_character_in_messages_is_named_with_its_line(tmp_path, tiny_target):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"messages": [{"role": "user", "content": "w5 \\ud800"}]}\n')
    with pytest.raises(
        DataError, match=r"lines.jsonl:1 has a lone surrogate at character \d+ of its messages, as JSON;"
    ):
        from_file(path, tiny_target)


def test_a_damaged_sample_is_named_with_its_line(tmp_path, samples):
    path = tmp_path / "samples.jsonl"
    write_samples(path, samples[:3])
    lines = path.read_bytes().split(b"\n")
    lines[1] = lines[1].replace(b"[", b"\xff", 1)
    path.write_bytes(b"\n".join(lines))
    with pytest.raises(DataError, match=r"samples.jsonl:2 is no sample \(UnicodeDecodeError"):
        read_samples(path, 29)
