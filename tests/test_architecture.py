"""The house rules that a machine can check: layers, light imports, documented public names."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import jaxmem
from jaxmem import reference

ROOT = Path(jaxmem.__file__).parent

# A module imports lower layers only, and its own folder.
LAYERS = {
    "common": 0,
    "results": 0,
    "sweep": 0,
    "plots": 0,
    "roofline": 1,
    "prefix_cache": 1,
    "recall": 1,
    "dialogue": 1,
    "prompts": 2,
    "lm": 2,
    "sessions": 3,
    "ledger": 3,
    "agents": 4,
    "demos": 5,
    "cli": 5,
}
MAY_USE_PLOTS = {"demos", "cli"}
EXTRAS = ("matplotlib", "argparse", "safetensors", "tokenizers", "gguf", "httpx", "psycopg")


def imports(path: Path) -> set[str]:
    """Dotted names that a module imports, those for type checkers left out."""
    found = set()
    nodes = [ast.parse(path.read_text())]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        nodes += ast.iter_child_nodes(node)
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
            assert node.level == 0, f"{path}: relative import"
    return found


def folder(name: str) -> str:
    """`common` for `jaxmem.common.files`."""
    return name.split(".")[1]


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_modules_import_lower_layers_only(path: Path) -> None:
    relative = path.relative_to(ROOT)
    own = relative.parts[0].removesuffix(".py")
    used = {folder(name) for name in imports(path) if name.startswith("jaxmem.")}
    if own in ("__init__", "__main__"):
        return
    if own == "reference":
        assert not used, f"{relative} imports {used}"
        assert not any(name.split(".")[0] == "jax" for name in imports(path))
        return
    for other in used - {own}:
        if other == "__version__":
            continue
        assert (
            LAYERS[other] < LAYERS[own]
            or (own, other) in {("cli", "demos")}
            or (LAYERS[own] == 0 and other in ("common", "results"))
        ), f"{relative} imports {other}, which is no lower layer"
    if own not in MAY_USE_PLOTS:
        assert "plots" not in used - {own}
    if own != "plots":
        assert not any(name.startswith("matplotlib") for name in imports(path))


def loaded(statement: str) -> set[str]:
    """Which of EXTRAS an import brings in, in a fresh process."""
    code = f"import sys; {statement}; print(*(m for m in {EXTRAS} if m in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_is_light() -> None:
    assert loaded("import jaxmem") <= loaded("import jax, optax, chex")


def public_modules() -> list[ModuleType]:
    names = [jaxmem.__name__, "jaxmem.ledger", "jaxmem.results", "jaxmem.plots"]
    names += [f"jaxmem.reference.{m.name}" for m in pkgutil.iter_modules(reference.__path__)]
    names += [
        "jaxmem.recall.cartridges",
        "jaxmem.recall.limits",
        "jaxmem.recall.memories",
        "jaxmem.dialogue.systems",
        "jaxmem.lm.cartridges",
        "jaxmem.lm.cartridges.formats",
        "jaxmem.lm.self_study",
        "jaxmem.lm.weights",
    ]
    names += [m.name for m in pkgutil.iter_modules(jaxmem.__path__, "jaxmem.") if m.ispkg]
    return [importlib.import_module(name) for name in names]


def public_names() -> list[tuple[str, object]]:
    found = []
    for module in public_modules():
        names = getattr(module, "__all__", None) or [
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
        ]
        for name in names:
            value = getattr(module, name)
            if inspect.isfunction(value) or inspect.isclass(value):
                found.append((f"{module.__name__}.{name}", value))
    return found


def members(value: object) -> list[tuple[str, object]]:
    """A public class's own methods."""
    if not inspect.isclass(value):
        return []
    return [
        (name, getattr(item, "__func__", item))
        for name, item in vars(value).items()
        if not name.startswith("_")
        and inspect.isfunction(getattr(item, "__func__", item))
        and item.__qualname__.startswith(value.__name__)
    ]


def names(word: str, doc: str) -> bool:
    return re.search(rf"\b{word}\b", doc) is not None


def problems(name: str, value: object) -> list[str]:
    doc = inspect.getdoc(value) or ""
    if not doc or doc.startswith(f"{getattr(value, '__name__', '')}("):
        return [f"{name}: no docstring"]
    if inspect.isclass(value):
        fields = (
            [f.name for f in dataclasses.fields(value)] if dataclasses.is_dataclass(value) else []
        )
        fields += list(getattr(value, "_fields", ()))
        return [
            f"{name}: field {f} is not described" for f in fields if not re.search(rf"\b{f}\b", doc)
        ]
    found = []
    signature = inspect.signature(value)  # type: ignore[arg-type]
    parameters = [p for p in signature.parameters if p not in ("self", "cls", "args", "kwargs")]
    if parameters and "Args:" not in doc:
        found.append(f"{name}: no Args section")
    found += [
        f"{name}: {p} is not described" for p in parameters if not re.search(rf"\b{p}\b", doc)
    ]
    returns = signature.return_annotation
    if (
        returns not in (None, "None", inspect.Signature.empty)
        and not re.search(r"Returns:|Yields:", doc)
        and parameters
    ):
        found.append(f"{name}: no Returns section")
    source = inspect.getsource(value)  # type: ignore[arg-type]
    if re.search(r"^\s+raise ValueError", source, re.M) and "Raises:" not in doc:
        found.append(f"{name}: raises, but has no Raises section")
    arrays = re.search(r"\bArrayLike\b|\bArray\b|ndarray", str(signature))
    shaped = re.search(r"\[[^\]]*\]|scalar|shape|broadcast", doc)
    if arrays and not shaped:
        found.append(f"{name}: arrays without shapes")
    return found


def test_public_names_are_documented() -> None:
    found = []
    for name, value in public_names():
        found += problems(name, value)
        for member, function in members(value):
            found += problems(f"{name}.{member}", function)
    assert not found, "\n".join(found)


def test_folders_export_few_names() -> None:
    for module in public_modules():
        exported = getattr(module, "__all__", [])
        assert len(exported) <= 18, f"{module.__name__} exports {len(exported)} names"
        assert sorted(exported) == sorted(set(exported))


def test_documentation_checker_catches_omissions() -> None:
    def bare(x):  # type: ignore[no-untyped-def]
        if x:
            raise ValueError
        return x

    assert problems("bare", bare) == ["bare: no docstring"]
    bare.__doc__ = "Does a thing."
    assert {p.split(": ")[1] for p in problems("bare", bare)} >= {"no Args section"}
    assert any("Raises" in p for p in problems("bare", bare))
