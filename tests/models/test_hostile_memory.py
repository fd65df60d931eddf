"""A hostile directory takes no memory before it is refused."""

import shutil
import subprocess
import sys
from pathlib import Path

from test_hostile_directories import EMPTY, FILES, SOUND, WEIGHTS, edit, safetensors
from test_hostile_tokenizers import TOKENIZERS

CHILD = """
import resource, sys
from specdec_jax import models
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
models.load(sys.argv[1])
before = peak()
for path in sys.argv[2:]:
    try:
        models.load(path)
    except models.LoadError:
        continue
    sys.exit(f"{path} was loaded")
print((peak() - before) / 1024)
"""


def test_no_large_allocation(saved, tmp_path):
    """Over all the memory of a process, for much of the reading is not Python's."""
    folders = []
    for number, data in enumerate(FILES.values()):
        folders.append(shutil.copytree(saved, tmp_path / f"weights{number}"))
        (folders[-1] / WEIGHTS).write_bytes(data)
    sizes = ({"num_hidden_layers": 10**9}, {"head_dim": 2**40}, {"vocab_size": 10**12}, {"hidden_size": 2**31})
    wide = {"head_dim": 2 * 10**8, "num_hidden_layers": 1, "rope_parameters": {"rope_type": "linear", "factor": 2.0}}
    for number, changes in enumerate((*sizes, wide)):
        folders.append(shutil.copytree(saved, tmp_path / f"sizes{number}"))
        edit(folders[-1] / "config.json", **changes)
    (folders[-1] / WEIGHTS).write_bytes(safetensors(EMPTY, data=b""))
    template = '{{ "a" * 1000000000 }}{{ "a" | center(1000000000) }}{{ 10 ** 100000000 }}{% for %}'
    for number, (tokenizer, chat) in enumerate([(TOKENIZERS["a nest"], ""), (TOKENIZERS["an id"], ""), ("", template)]):
        folders.append(shutil.copytree(saved, tmp_path / f"tokenizer{number}"))
        (folders[-1] / "tokenizer.json").write_text(tokenizer or SOUND)
        (folders[-1] / "chat_template.jinja").write_text(chat)
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {root!r}){CHILD}", str(saved), *map(str, folders)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 64, "mebibytes"
