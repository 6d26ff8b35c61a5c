"""The README's own commands, table and code."""

import doctest
import re
from pathlib import Path

from bounds.cli import main
from sim.registry import names

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text("utf-8")


def test_code_examples() -> None:
    result = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert result.attempted >= 6 and result.failed == 0


def test_commands_and_files_exist() -> None:
    commands = {name.replace("_", "-") for name in names("bounds.commands")}
    mentioned = set(re.findall(r"^servebound ([a-z-]+)", README, re.M)) | {
        word.split()[0]
        for row in re.findall(r"^\| .*\? \| (.*?) \|", README, re.M)
        for word in re.findall(r"`(.*?)`", row)
    }
    assert mentioned <= commands
    for link in re.findall(r"\]\(((?!http)[^)#]+)\)", README):
        assert (ROOT / link).exists(), link
    for target in ("demo", "test"):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.M)


def test_the_table_is_what_the_demo_prints(capsys) -> None:  # type: ignore[no-untyped-def]
    shown = README.split("<!-- demo -->")[1].split("<!-- /demo -->")[0]
    assert main(["compare", "paper-7.2-i0032", "--quiet"]) == 0
    printed = capsys.readouterr().out

    def rows(text: str) -> list[list[str]]:
        return [line.split() for line in text.splitlines() if re.match(r"(vllm|sarathi|optimum)", line.strip())]

    assert rows(shown) == rows(printed) and len(rows(shown)) == 7
