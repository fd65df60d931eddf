"""Files of text as editors leave them."""

import pytest

from specdec_jax.training.data import from_file
from specdec_jax.training.samples import Sample


@pytest.mark.parametrize(
    ("line", "expected"),
    [('{"text": "w5 w6"}', ([Sample([], [5, 6, 0])], [])), ('{"prompt": "w5"}', ([], [[1, 5, 0, 2]]))],
)
def test_a_mark_at_the_beginning_is_no_text(line, expected, tmp_path, tiny_target):
    path = tmp_path / "lines.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + line.encode())
    assert from_file(path, tiny_target) == expected
