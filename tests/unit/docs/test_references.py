"""What texts name as `module.Name` is defined in that module."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
TEXTS = [*sorted((ROOT / "src").rglob("*.py")), *sorted((ROOT / "src").rglob("*.md")), *sorted(ROOT.glob("docs/*.md"))]
REFERENCE = re.compile(r"`(?:\w+\.)*([a-z]\w*)\.([A-Z]\w*)(?:\.\w+)*(?:\([^`]*\))?`")
ELSEWHERE = {
    "click",
    "protobuf",
    "quickjs",
    "rpc",
    "sys",
    "threading",
    "v1",
}  # modules of others, protobuf's packages, a scope of rules
PLACEHOLDERS = {"NAME", "PROJECT"}


def test_what_is_named_with_its_module_is_defined_there() -> None:
    sources: dict[str, str] = {}
    for path in (ROOT / "src").rglob("*.py"):
        module = path.parent.name if path.stem == "__init__" else path.stem
        sources[module] = sources.get(module, "") + path.read_text()
    missing = []
    for path in TEXTS:
        for module, name in REFERENCE.findall(path.read_text()):
            if module in ELSEWHERE or name in PLACEHOLDERS:
                continue
            if not re.search(rf"^(?:class |def )?{name}\b", sources.get(module, ""), re.MULTILINE):
                missing.append(f"{path.relative_to(ROOT)}: {module}.{name}")
    assert not missing, "\n".join(missing)
