"""What is done with each block of a page: one function a language, and what came of it."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import yaml

from schemas.settings import from_mapping
from tests.docs.doc_blocks import EXECUTED, PAGES, ROOT, Block, Page, page_of
from tests.docs.doc_site import Site
from tidemark import cli

SETUPS: Final = {
    "no-user": "DROP USER tidemark",
    "shards": """
        CREATE DATABASE shop_1; CREATE DATABASE shop_2; CREATE DATABASE crm;
        CREATE TABLE shop_1.orders (id INT PRIMARY KEY, amount DECIMAL(8, 2), status VARCHAR(10), note TEXT);
        CREATE TABLE shop_2.orders LIKE shop_1.orders;
        CREATE TABLE crm.people (id INT PRIMARY KEY, email VARCHAR(100));
        INSERT INTO shop_1.orders VALUES (1, 5, 'paid', 'x'); INSERT INTO shop_2.orders VALUES (1, 7, 'draft', 'y');
        INSERT INTO crm.people VALUES (1, 'ada@example.org');
        GRANT SELECT ON shop_1.* TO tidemark; GRANT SELECT ON shop_2.* TO tidemark; GRANT SELECT ON crm.* TO tidemark""",
}
"""SQL by the name that a page gives (`setup=`): what must be there before its blocks."""
_SERVICE: Final = re.compile(r"tidemark (run|merge)\b(?!.*--until-caught-up)")
_ENDLESS: Final = re.compile(r"tidemark (tail(?!.*--count)|.*--watch)")
_SETTLED: Final = re.compile(r"tidemark (verify|quarantine|lag|rebuild)")
_COMMENT: Final = re.compile(r"(^|\s+)#.*$")
_TARGET: Final = re.compile(r"^([A-Za-z0-9_-]+):", re.MULTILINE)


def counted(pages: Iterable[Page]) -> tuple[Counter[str], Counter[str]]:
    """Return how many blocks of each language are run, by this or by the test that they name, and how many are only shown."""
    executed, shown = Counter[str](), Counter[str]()
    for page in pages:
        for block in page.blocks:
            is_run = block.language in EXECUTED or "output" in block.options or "test" in page.options
            kind = executed if is_run and not block.shown else shown
            kind[block.language or "text"] += 1
    return executed, shown


def execute(page: Page, site: Site, *, flavour: str) -> None:
    """Run every block of a page in its order. AssertionError with page, line and what was said for the first that fails."""
    if page.name == "README.md":
        _execute_blocks(page, site, flavour)
        return
    for verb in ("run", "merge"):
        if not site.is_running(verb):
            site.start(verb, f"tidemark {verb}")
    before = site.path.read_text("utf-8")
    try:
        _execute_blocks(page, site, flavour)
    finally:
        if any("pause-snapshot" in block.text for block in page.blocks):
            site.shell("tidemark signal resume-snapshot")  # for the next page
        if site.path.read_text("utf-8") != before:  # the next page begins with the settings of the README, as this one did
            for verb in list(site.services):
                site.stop(verb)
            site.path.write_text(before, "utf-8")
            for verb in ("run", "merge"):
                site.start(verb, f"tidemark {verb}")
            site.shell(r"tidemark signal execute-snapshot 'shop\..*' --wait")  # rows as these settings have them


def _execute_blocks(page: Page, site: Site, flavour: str) -> None:
    for block in page.blocks:
        if block.shown or "test" in block.options or block.options.get("on", flavour) != flavour:
            continue
        try:
            _execute(block, site)
        except Exception as error:
            said = f"{block.where}: {error}\n--- {block.language}\n{block.text}"
            print(said)
            raise AssertionError(said) from error
        ended = [verb for verb in site.services if not site.is_running(verb)]
        assert not ended, f"{block.where}: tidemark {ended} does not run after {block.text}\n{site.log_tail(ended[0])}"


def _execute(block: Block, site: Site) -> None:
    if block.options.get("setup"):
        site.sql(SETUPS[block.options["setup"]])
    stopped = [verb for verb in block.options.get("stop", "").split(",") if verb]
    if "merge" in stopped:
        site.settle()
    for verb in stopped:
        site.stop(verb)
    if "file" in block.options:
        _write(block, site)
    elif "output" in block.options:
        assert block.text in site.printed, f"the page shows\n{block.text}\nand the command prints\n{site.printed}"
    else:
        _BY_LANGUAGE[block.language](block, site)
    for verb in stopped:
        site.start(verb, f"tidemark {verb}")


def _shell(block: Block, site: Site) -> None:
    for command in commands_of(block):
        began = time.monotonic()
        _run(command, block, site)
        print(f"{block.where}: {command}: {time.monotonic() - began:.1f} s")


def _sql(block: Block, site: Site) -> None:
    site.sql(site.localised(_for_this_server(block.text, site)))


def _python(block: Block, site: Site) -> None:
    site.settle()
    program = site.folder / f"block-{block.line}.py"
    program.write_text(site.localised(block.text), "utf-8")
    site.first_line([sys.executable, str(program)])


def _json(block: Block, _: Site) -> None:
    for line in block.text.splitlines():
        json.loads(line)


def _for_this_server(text: str, site: Site) -> str:
    """Return the statements without those of which their line says that they are for MySQL, on MariaDB."""
    return re.sub(r"^.*-- MySQL [^\n]* only$", "", text, flags=re.MULTILINE) if site.database.flavour == "mariadb" else text


def _write(block: Block, site: Site) -> None:
    """Write a block into the file that it is said to be; settings are merged into those of the README."""
    name, text = block.options["file"], site.localised(block.text)
    if name == "tidemark.yaml":
        site.configure(merged(yaml.safe_load(site.localised(readme_settings())), yaml.safe_load(text)))
    else:
        (site.folder / name).write_text(text, "utf-8")


def commands_of(block: Block) -> Iterator[str]:
    """Yield the commands of a shell block without their comments, a line each unless it ends with a backslash."""
    for line in block.text.replace("\\\n", " ").splitlines():
        command = _COMMENT.sub("", line).strip()
        if command:
            yield command


def _run(command: str, block: Block, site: Site) -> None:
    wanted = int(block.options.get("exit", "0"))
    if command.startswith("make "):
        targets = _TARGET.findall((ROOT / "Makefile").read_text("utf-8"))
        assert shlex.split(command, comments=True)[1] in targets, f"{command}: there is no such target"
        return
    own = site.localised(command)
    service = _SERVICE.match(own)
    if service:
        site.start(service[1], own)
    elif _ENDLESS.match(own):
        site.first_line(["bash", "-c", f"exec {own}"])
    else:
        if _SETTLED.match(own):
            site.settle()
        done = site.shell(own)
        site.printed = done.stdout
        assert done.returncode == wanted, f"{command}\nexit code {done.returncode}, not {wanted}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"


def check_statically(block: Block) -> None:
    """Check what needs no server: settings are accepted, commands parsed, programs compiled, documents read."""
    if block.shown:
        return
    if block.language == "yaml" and "file" not in block.options:
        from_mapping(beside_the_readme(block.text))
    elif block.language == "python":
        compile(block.text, block.where, "exec")
    elif block.language == "shell":
        for command in " && ".join(commands_of(block)).split(" && "):
            if command.startswith("tidemark "):
                cli.parser().parse_args(shlex.split(command, comments=True)[1:])


_BY_LANGUAGE: Final = {
    "shell": _shell, "sql": _sql, "python": _python, "json": _json,
    "yaml": lambda block, _: from_mapping(beside_the_readme(block.text)), "promql": lambda block, site: site.promql(block.text),
}  # fmt: skip


def readme_settings() -> str:
    """Return the settings of the README, as text."""
    (text,) = (block.text for block in page_of(PAGES[0]).blocks if block.language == "yaml")
    return text + "\n"


def beside_the_readme(text: str) -> dict[str, Any]:
    """Return the settings of a block put over those of the README: a page shows what is different."""
    return merged(yaml.safe_load(readme_settings()), yaml.safe_load(text))


def merged(base: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    """Return two documents as one; what the second has wins, section by section."""
    both = {key: merged(base[key], more[key]) for key in base.keys() & more.keys() if isinstance(more[key], dict) and isinstance(base[key], dict)}
    return {**base, **more, **both}
