"""Results of a job as tests write them and read them back."""

from specdec_jax.batch.files import Place
from specdec_jax.batch.results import open_results, read_results


def records(*indices: int) -> list[dict]:
    return [{"index": index, "text": f"ä {index}"} for index in indices]


def indices(where: Place) -> list[int]:
    return [record["index"] for record in read_results(where)]


def write(where: Place, *which: int) -> None:
    with open_results(where) as results:
        results.append(records(*which))
        results.write()
