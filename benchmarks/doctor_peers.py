"""The doctor on a long log, alone and beside kvlint and llmtrafficlens.

A made-up log of 100 MB (`prompt_log.py`). First the doctor alone, with prices; then each tool on
the same log in the format that it reads, each in a process of its own, in turn, the best of two
runs. Imports are not counted, reports are not written. Two sums are compared: reading and the hit
rate alone (`hits_s`), and all that a tool finds (`whole_s`): our findings with every remedy
replayed; kvlint's rules, and its fixes replayed once; llmtrafficlens's profile. With the latter the
hit curve is compared too (`curve_s`): our every capacity, its seven cache sizes.

Hit rates are compared under rules that coincide, without limit of memory and from a cold start.
With kvlint: one tokenizer.json for both, and a chat template that renders what jaxmem reads; blocks
of 16 tokens. With llmtrafficlens: characters, blocks of 64 (its 16 tokens of 4); its own text of a
chat body has other marks, so it gets the rendered prompts too.
"""

import importlib
import importlib.metadata
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import prompt_log

LOG_MB = 100
RUNS = 2
BLOCK = 16
CHARS = 4  # a token of llmtrafficlens
CACHE_TOKENS = 2**20  # one of its cache sizes


def main() -> list[dict[str, Any]]:
    """Seconds by stage, peak memory and hit rates."""
    with tempfile.TemporaryDirectory() as name:
        log = Path(name) / "log.jsonl"
        calls = prompt_log.write_jsonl(log, LOG_MB)
        alone = _child("jaxmem", log, f"{BLOCK}")
        records = [{"system": "jaxmem, the doctor alone"} | alone, *peers(log)]
    return [{"megabytes": LOG_MB, "calls": calls} | record for record in records]


def peers(log: Path) -> list[dict[str, Any]]:
    """Records of tools side by side; one that says so for a peer that is not installed."""
    table, prompts = log.with_name("chat.csv"), log.with_name("prompts.csv")
    groups: list[dict[str, list[Any]]] = []
    records = []
    if _installed("kvlint"):
        tokenizer = log.with_name("tokenizer")
        prompt_log.write_tokenizer(tokenizer, log)
        groups.append(
            {
                "jaxmem, tokenizer.json": ["jaxmem_all", log, f"{BLOCK}", tokenizer],
                f"kvlint {_version('kvlint')}": ["kvlint", log, tokenizer],
            }
        )
    else:
        records.append(_missing("kvlint"))
    if _installed("llmtrafficlens"):
        version = _version("llmtrafficlens")
        prompt_log.write_csv(table, LOG_MB)
        prompt_log.write_csv(prompts, LOG_MB, rendered=True)
        groups.append(
            {
                "jaxmem, characters": ["jaxmem_all", log, f"{BLOCK * CHARS}"],
                f"llmtrafficlens {version}, rendered prompts": ["llmtrafficlens", prompts],
                f"llmtrafficlens {version}, chat bodies": ["llmtrafficlens", table],
            }
        )
    else:
        records.append(_missing("llmtrafficlens"))
    for group in groups:
        best: dict[str, dict[str, float]] = {}
        for _ in range(RUNS):  # in turn, so that a slow spell of the machine meets all
            for system, command in group.items():
                found = _child(*command)
                if system not in best or found["whole_s"] < best[system]["whole_s"]:
                    best[system] = found
        ours = next(iter(best.values()))
        for system, found in best.items():
            more = {}
            if found is not ours:
                more = {
                    "hits_over_jaxmem": found["hits_s"] / ours["hits_s"],
                    "whole_over_jaxmem": found["whole_s"] / ours["whole_s"],
                }
                if "curve_s" in found:
                    more["curve_over_jaxmem"] = found["curve_s"] / ours["curve_s"]
            records.append({"system": system} | found | more)
    return records


def _missing(name: str) -> dict[str, Any]:
    print(f"{name} is not installed (pip install 'jaxmem[bench]'): left out")
    return {"system": f"{name}: not installed"}


def _installed(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


def _version(name: str) -> str:
    return importlib.metadata.version(name)


def _child(*command: Any) -> dict[str, float]:
    """What a tool of `TOOLS` measures in a process of its own."""
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    done = subprocess.run(
        [sys.executable, __file__, *map(str, command)],
        stdout=subprocess.PIPE,
        check=True,
        env=os.environ | offline,
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


class _Watch:
    """Seconds of the stages of a tool."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, stage: str, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        value = call()
        self.seconds[stage] = time.perf_counter() - start
        return value

    def found(self, whole: tuple[str, ...], hit_rate: float, tokens: int) -> dict[str, float]:
        """What is reported: `whole` names the stages that a user of all would run."""
        s = self.seconds
        sums = {"hits_s": s["read_s"] + s["reuse_s"], "whole_s": sum(s[name] for name in whole)}
        about = {"prompt_tokens": tokens, "hit_rate": hit_rate, "peak_gb": _peak_gb()}
        return s | sums | about


def jaxmem(log: str, block: str) -> dict[str, float]:
    """The doctor as `jaxmem doctor` runs it, with prices by all rules."""
    from jaxmem.prompts.log import ByteEstimate
    from jaxmem.prompts.price import prices

    watch, read, share = _doctor(log, int(block), ByteEstimate(), "session")
    watch("price_s", lambda: prices(read))
    whole = ("read_s", "findings_s", "price_s")
    return watch.found(whole, share, int(read.prompt_tokens.sum()))


def jaxmem_all(log: str, block: str, tokenizer: str = "") -> dict[str, float]:
    """The doctor where sessions share a cache, as the peers take it, without prices."""
    from jaxmem.prompts.log import ByteEstimate, Encoder
    from jaxmem.prompts.tokens import token_encoder

    encoder: Encoder = token_encoder(tokenizer) if tokenizer else ByteEstimate(1.0)
    watch, read, share = _doctor(log, int(block), encoder, "all")
    curve: dict[str, float] = {}
    if not tokenizer:
        curve = _curve(watch, read, int(block))
    return watch.found(("read_s", "findings_s"), share, int(read.prompt_tokens.sum())) | curve


def _doctor(log: str, block: int, encoder: Any, scope: str) -> tuple[_Watch, Any, float]:
    """Our stages, the log, and the share reused; the findings begin with a reuse of their own."""
    from jaxmem.prompts.doctor import diagnose
    from jaxmem.prompts.readers import read_log
    from jaxmem.prompts.reuse import reuse

    watch = _Watch()
    read = watch("read_s", lambda: read_log(log, encoder))
    found = watch("reuse_s", lambda: reuse(read, block, scope=scope))
    watch("findings_s", lambda: diagnose(read, block, scope=scope))
    return watch, read, found.share


def _curve(watch: _Watch, read: Any, block: int) -> dict[str, float]:
    """Hit rates at every capacity; the compile apart."""
    from jaxmem.prefix_cache import lru_curve
    from jaxmem.prompts.reuse import block_trace

    watch("compile_s", lambda: lru_curve(block_trace(read, block), "plain"))
    curve = watch("curve_s", lambda: lru_curve(block_trace(read, block), "plain"))
    watch.seconds["compile_s"] -= watch.seconds["curve_s"]
    return {"hit_rate_1m": float(curve.token_ratio(CACHE_TOKENS // BLOCK))}


def kvlint(log: str, model: str) -> dict[str, float]:
    """kvlint's lint and fix for vLLM, without the SGLang simulation and reports."""
    load = _module("kvlint.ingest").load
    run = _module("kvlint.lint.engine").run
    simulate = _module("kvlint.sim.vllm_blocks").simulate
    tokenize_requests = _module("kvlint.tokenize.renderer").tokenize_requests
    fix_requests = _module("kvlint.fix.rewriter").fix_requests
    _module("transformers")  # which kvlint imports late

    watch = _Watch()
    requests = watch("load_s", lambda: load(Path(log), "openai"))
    tokens = watch("tokens_s", lambda: tokenize_requests(model, requests))
    watch.seconds["read_s"] = watch.seconds.pop("load_s") + watch.seconds.pop("tokens_s")
    result = watch("reuse_s", lambda: simulate(tokens, BLOCK))
    watch("findings_s", lambda: run(requests, tokens, BLOCK))
    count = sum(len(one.token_ids) for one in tokens)
    tokens.clear()

    def replay() -> None:
        fixed = fix_requests(requests).requests
        simulate(tokenize_requests(model, fixed), BLOCK)

    watch("fix_s", replay)
    whole = ("read_s", "reuse_s", "findings_s", "fix_s")
    return watch.found(whole, result.hit_rate, count)


def llmtrafficlens(table: str) -> dict[str, float]:
    """llmtrafficlens's profile from a cold start, without its reports."""
    read = _module("llmtrafficlens.adapters").read
    metrics = _module("llmtrafficlens.metrics")
    hit_rate, capacity_curve = metrics.hit_rate, metrics.capacity_curve
    build_profile = _module("llmtrafficlens.report").build_profile

    watch = _Watch()
    requests = watch("read_s", lambda: read(table, "openai-gateway", BLOCK, b"benchmark"))
    rate = watch("reuse_s", lambda: hit_rate(requests, BLOCK, None, 0.0))
    watch("findings_s", lambda: build_profile(requests, BLOCK, 0.0))
    capacities = _module("llmtrafficlens.report").DEFAULT_CAPACITIES
    curve = watch("curve_s", lambda: capacity_curve(requests, BLOCK, capacities, 0.0))
    at = {row["capacity_tokens"]: row["hit_rate"] for row in curve}
    count = sum(one.input_tokens for one in requests)
    found = watch.found(("read_s", "findings_s"), rate, count)
    return found | {"hit_rate_1m": at[CACHE_TOKENS]}


def _module(name: str) -> Any:
    return importlib.import_module(name)  # an extra, without types


TOOLS: dict[str, Callable[..., dict[str, float]]] = {
    "jaxmem": jaxmem,
    "jaxmem_all": jaxmem_all,
    "kvlint": kvlint,
    "llmtrafficlens": llmtrafficlens,
}


def _peak_gb() -> float:
    """Peak resident memory of this process; the peers' must not import jax to know it."""
    status = Path("/proc/self/status")  # ru_maxrss would start from the parent's peak on Linux
    if status.exists():
        line = next(row for row in status.read_text().splitlines() if row.startswith("VmHWM"))
        return int(line.split()[1]) * 1024 / 1e9
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":  # a process of its own
    print(json.dumps(TOOLS[sys.argv[1]](*sys.argv[2:])))
