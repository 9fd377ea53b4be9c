"""`jaxmem cost`: what it prints, and one line for whatever is wrong."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jaxmem.cli.main import main
from jaxmem.roofline.catalogue import CONFIGS

Run = Callable[..., tuple[int, str, str]]
BASE = ("cost", "--model", "llama-3-8b", "--gpu", "h100-80gb", "--context", "128k")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        try:
            code = main(list(arguments))
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def record(out: str) -> dict[str, Any]:
    return json.loads(out)["records"][0]


def test_a_table(run: Run) -> None:
    code, out, err = run(*BASE)
    assert (code, err) == (0, "")
    assert "llama-3-8b on h100-80gb, measured kernels" in out
    assert "8.65 s" in out
    assert "users that fit" in out


def test_json_has_the_lecture_s_numbers(run: Run) -> None:
    code, out, _ = run(*BASE, "--efficiency", "constant", "--json")
    assert code == 0
    row = record(out)
    assert row["efficiency"] == "constant"
    assert row["prefill_s"] == pytest.approx(8.781, rel=1e-3)
    assert row["full_step_s"] == pytest.approx(24.8e-3, rel=1e-3)
    assert row["kv_bytes"] == 128_000 * 131_072
    assert row["users"] == 3


def test_options_reach_the_model(run: Run) -> None:
    _, out, _ = run(
        *("cost", "--model", "llama-3-8b", "--gpu", "h100", "--context", "1k"),
        *("--shared", "120k", "--cached", "120k", "--batch", "8", "--devices", "2"),
        *("--kv-dtype", "fp8", "--answer", "50", "--json"),
    )
    row = record(out)
    assert row["accelerator"] == "h100-80gb"
    assert (row["batch"], row["devices"], row["cached_tokens"]) == (8, 2, 120_000)
    assert row["kv_bytes"] == 121_000 * 65_536
    assert row["users"] > 1_000


def test_a_config_file(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["gemma-3-27b"]))
    code, out, _ = run("cost", "--config", str(path), "--gpu", "h200", "--context", "8k")
    assert code == 0
    assert "vision tower not counted" in out


def test_what_does_not_fit_is_said(run: Run) -> None:
    code, out, _ = run("cost", "--model", "deepseek-v3", "--gpu", "h200", "--context", "1k")
    assert code == 0
    assert "Nothing fits: the weights are 546 GB larger than 0.9 of the memory" in out
    _, out, _ = run("cost", "--model", "llama-3-8b", "--gpu", "rtx-4090", "--context", "128k")
    assert "a user needs 16.8 GB" in out


def test_plan(run: Run) -> None:
    code, out, _ = run(*BASE, "--plan", "--queries", "1000", "--updates", "1")
    assert code == 0
    assert "Cheapest that keeps the whole text: full context, cached." in out
    assert "above 9," in out or "above 10," in out
    code, out, _ = run(*BASE, "--plan", "--one-text", "--json")
    document = json.loads(out)
    assert len(document["options"]) == 6
    assert document["cheapest_whole"] == "full context, cached"


def test_plan_beyond_the_window(run: Run) -> None:
    code, out, _ = run(
        *("cost", "--model", "llama-3-8b", "--gpu", "h100", "--context", "484k", "--plan")
    )
    assert code == 0
    assert "needs 484,300 tokens, the window holds 131,072" in out
    code, out, _ = run(*BASE[:-1], "400k", "--plan", "--window", "1M", "--owners", "3", "--json")
    assert code == 0
    cached = json.loads(out)["options"][1]
    assert cached["feasible"] is True
    assert cached["resident_bytes"] == pytest.approx(3 * 400_000 * 131_072)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cost", *BASE[3:]), "one of the arguments --model --config is required"),
        ((*BASE, "--config", "x"), "not allowed with argument --model"),
        (BASE[:5], "the following arguments are required: --context"),
        ((*BASE[:-1], "0"), "argument --context: expected at least 1 token, got '0'"),
        ((*BASE[:-1], "-5"), "argument --context: expected"),
        ((*BASE[:-1], "12q"), "argument --context: expected tokens, such as 128000"),
        ((*BASE[:-1], "1.0001k1"), "argument --context: expected tokens"),
        ((*BASE[:-1], "nan"), "argument --context: expected tokens"),
        ((*BASE, "--batch", "1.5"), "argument --batch: expected a whole number"),
        ((*BASE, "--devices", "0"), "argument --devices: expected a whole number"),
        ((*BASE, "--queries", "-1"), "argument --queries: expected"),
        ((*BASE, "--queries", "inf"), "argument --queries: expected a number of 0 to 10^15"),
        ((*BASE, "--efficiency", "best"), "argument --efficiency: invalid choice: 'best'"),
        ((*BASE, "--kv-dtype", "fp4"), "unknown KV dtype 'fp4' (did you mean"),
        ((*BASE, "--cached", "129k"), "--cached must be at most the prompt (128,000), got 129,000"),
        ((*BASE, "--plan", "--shared", "1k"), "--plan takes no --shared"),
        (
            ("cost", "--model", "lama-3-8b", "--gpu", "h200", "--context", "1"),
            "unknown model 'lama-3-8b' (did you mean 'llama-3-8b'?)",
        ),
        (
            ("cost", "--model", "llama-3-8b", "--gpu", "h300", "--context", "1"),
            "unknown accelerator 'h300' (did you mean 'h200'?)",
        ),
        (
            ("cost", "--model", "llama-3-8b", "--gpu", "b200", "--context", "1", "--efficiency")
            + ("measured",),
            "measured efficiency exists for h100-80gb and h200",
        ),
        (
            ("cost", "--config", "/nowhere/config.json", "--gpu", "h200", "--context", "1"),
            "/nowhere/config.json: No such file or directory",
        ),
    ],
)
def test_errors_are_one_line_with_exit_code_2(
    run: Run, arguments: tuple[str, ...], message: str
) -> None:
    code, out, err = run(*arguments)
    assert code == 2
    assert message in err
    assert err.startswith("jaxmem")
    assert err.count("\n") == 1
    assert out == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "config.json, line 1: not JSON"),
        ('{"model_type": "llama"}', "config.json: field num_hidden_layers is missing"),
        ('{"model_type": "gpt2"}', "config.json: unknown model_type 'gpt2' (known: deepseek_v2,"),
        ('{"model_type": "llama",\n "num_hidden_layers": -1}', "num_hidden_layers must be"),
    ],
)
def test_bad_configs_are_one_line(run: Run, tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    code, _, err = run("cost", "--config", str(path), "--gpu", "h200", "--context", "8k")
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--context", "1,5k"], "expected tokens"),
        (["--context", "9" * 400], "expected tokens"),
        (["--context", "1k", "--queries", "5"], "--queries needs --plan"),
        (["--context", "1k", "--one-text"], "--one-text needs --plan"),
        (["--context", "1k", "--set", "training_s=1"], "--set needs --plan"),
    ],
)
def test_nothing_is_misread_or_ignored(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["cost", "--model", "llama-3-8b", "--gpu", "h100", *arguments])
    except SystemExit as stop:
        code = int(stop.code or 0)
    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


def test_a_plan_says_what_it_takes_for_granted(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", "llama-3-8b", "--gpu", "l40s", "--context", "30k", "--plan"]
    assert main(["cost", *options, "--owners", "5000", "--set", "training_s=100"]) == 0
    out = capsys.readouterr().out
    assert "training_s 100," in out
    assert "how well, is not compared" in out
    assert "more than the device holds" in out
    for change, message in (
        ("trainin_s=3", "did you mean 'training_s'"),
        ("training_s", "--set training_s: expected a number"),
        ("lifetime_weeks=0", "lifetime_weeks"),
    ):
        assert main(["cost", *options, "--set", change]) == 2
        assert message in capsys.readouterr().err


def test_a_batch_that_does_not_fit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--model", "llama-3-8b", "--gpu", "h100", "--context", "10k", "--batch", "1000"]
    assert main(["cost", *options]) == 0
    assert "notice: 1,000 users do not fit, 41 would" in capsys.readouterr().out
