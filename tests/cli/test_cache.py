"""`jaxmem cache` as it is typed."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from jaxmem.cli.main import main
from jaxmem.prefix_cache import lru_curve, read_trace, synthetic_trace, write_trace


@pytest.fixture(scope="module")
def trace_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("trace") / "trace.jsonl.gz"
    write_trace(path, synthetic_trace(jax.random.key(0), users=20, block_tokens=16))
    return path


def test_table(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", str(trace_file), "--block-tokens", "16", "--capacity", "900"]) == 0
    out = capsys.readouterr().out
    curve = lru_curve(read_trace(trace_file, 16))
    assert f"{curve.block_ratio(900):.4f}" in out
    assert "the curve flattens at" in out
    assert "GPU s" not in out


def test_json_has_every_figure(trace_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", "llama-3-8b", "--memory", "2GB", "--json", "--block-tokens", "16"]
    assert main(["cache", str(trace_file), *options]) == 0
    rows = json.loads(capsys.readouterr().out)["records"]
    asked = next(row for row in rows if row["capacity_blocks"] == int(2e9 // (131_072 * 16)))
    assert 0 < asked["saved_share"] < 1
    assert asked["saved_gpu_s"] > 0
    last = rows[-1]
    assert last["capacity_blocks"] is None
    assert last["hits"] >= asked["hits"]


def test_tiers_ttl_and_picture(
    trace_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "curve.png"
    options = ["--model", "llama-3-8b", "--tiers", "hbm=1GB,dram=10GB@50GB/s", "--ttl", "120"]
    options += ["--plot", str(picture), "--semantics", "prefix", "--block-tokens", "16"]
    assert main(["cache", str(trace_file), *options]) == 0
    out = capsys.readouterr().out
    assert "dram" in out
    assert "blocks expire after 120 s" in out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_notice_for_a_request_larger_than_the_cache(
    trace_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", str(trace_file), "--capacity", "10", "--block-tokens", "16"]) == 0
    assert "a server would refuse it" in capsys.readouterr().out


BAD = {
    "no such file": (["nowhere.jsonl"], "nowhere.jsonl: No such file"),
    "a folder": (["."], "Is a directory"),
    "zero capacity": (["T", "--capacity", "0"], "whole number of at least 1"),
    "a capacity beyond all numbers": (["T", "--capacity", "1" + "0" * 30], "at most 10^15"),
    "a picture where none can be": (["T", "--plot", "/proc/curve.png"], "/proc/curve.png: "),
    "negative memory": (["T", "--memory", "-3GB"], "expected"),
    "memory without a model": (["T", "--memory", "3GB"], "--memory needs --model"),
    "tiers without a model": (["T", "--tiers", "hbm=3GB"], "--tiers needs --model"),
    "memory for no block": (
        ["T", "--memory", "1KB", "--model", "llama-3-8b"],
        "a block of 16 tokens takes",
    ),
    "an unknown model": (["T", "--model", "lama-3-8b"], "did you mean 'llama-3-8b'"),
    "an unknown accelerator": (["T", "--gpu", "hx100"], "unknown accelerator 'hx100'"),
    "an unknown semantics": (["T", "--semantics", "vlm"], "did you mean 'vllm'"),
    "another block size": (["T", "--block-tokens", "17"], "line 1: field 'hash_ids'"),
    "a tier without bandwidth": (
        ["T", "--model", "llama-3-8b", "--tiers", "a=1GB,b=2GB"],
        "needs its bandwidth",
    ),
    "a tier without size": (["T", "--model", "llama-3-8b", "--tiers", "a"], "--tiers: 'a'"),
    "a picture of another kind": (["T", "--plot", "curve.txt"], "to .png, .svg or .pdf"),
    "an empty model name": (["T", "--model", ""], "unknown model ''"),
    "a picture without a name": (["T", "--plot", ""], "to .png, .svg or .pdf"),
    "tiers without a name": (["T", "--model", "llama-3-8b", "--tiers", ""], "--tiers: ''"),
    "a ttl of nothing": (["T", "--ttl", "0"], "ttl"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(
    case: str,
    trace_file: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, message = BAD[case]
    arguments = [str(trace_file) if a == "T" else a for a in arguments]
    if "--block-tokens" not in arguments:
        arguments += ["--block-tokens", "16"]
    try:
        code = main(["cache", *arguments])
    except SystemExit as stop:  # argparse leaves by itself
        code = int(stop.code or 0)
    shown = capsys.readouterr()
    assert code == 2
    assert message in shown.err
    assert shown.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


ROW = '{"timestamp": 0, "input_length": 700, "output_length": 5, "hash_ids": [1, 2]}'


@pytest.mark.parametrize(
    ("content", "code", "message"),
    [
        (f"{ROW}\r\n{ROW}\r\n", 0, "the curve flattens at"),
        (f"\ufeff{ROW}\n{ROW}\n", 0, "the curve flattens at"),
        (ROW, 0, "no block is ever served"),
        (ROW.replace("700", "0").replace("1, 2", ""), 2, "odd.jsonl: no request has a block"),
    ],
)
def test_odd_files(
    content: str, code: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(content.encode())
    assert main(["cache", str(path)]) == code
    shown = capsys.readouterr()
    assert message in (shown.err if code else shown.out)


def test_a_pipe_is_read(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jaxmem", "cache", "/dev/stdin"],
        input=f"{ROW}\n{ROW}\n",
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "the curve flattens at" in done.stdout


def test_a_broken_trace_is_named_by_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "bad.jsonl").write_text('{"timestamp": 0}\n')
    assert main(["cache", str(tmp_path / "bad.jsonl")]) == 2
    assert "bad.jsonl: line 1: field 'input_length' is missing" in capsys.readouterr().err
