"""Where compiled kernels are kept, when they are compiled, and what is said where they cannot be."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels import object_files
from kernels.loader import Library
from kernels.object_files import _end_of, source_hash
from schemas.errors import KernelError

ROOT = Path(__file__).parent.parent.parent
CALL = "from tests.kernels import sample_kernels as s; print(s.nothing())"
READ_ONLY = """
import os
access = os.access
given = os.environ["NUMBA_CACHE_DIR"]
os.access = lambda path, mode: access(path, mode) and not (mode & os.W_OK and str(path).startswith(given))
"""
NO_COMPILER = """
import subprocess
def refuse(*arguments, **more):
    raise AssertionError("it is compiled again")
subprocess.Popen = refuse
"""
NOWHERE_ELSE = {"HOME": "/dev/null", "TIDEMARK_CACHE": ""}


@pytest.fixture(scope="module", autouse=True)
def other_folder_for_temporary_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(tmp_path_factory.mktemp("temporary")))
        yield


def python(code: str, *, check: bool = True, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env={**os.environ, **NOWHERE_ELSE, **environment}, capture_output=True, text=True, timeout=200, check=check,
    )  # fmt: skip


def objects(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.o"))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sample's object file, made by a process that called one kernel."""
    folder = tmp_path_factory.mktemp("compiled")
    assert python(CALL, NUMBA_CACHE_DIR=str(folder)).stdout == "7\n"
    return folder


def test_kernels_are_compiled_once_and_loaded_without_numba(compiled: Path) -> None:
    (file,) = objects(compiled)
    before = file.stat()
    again = python(NO_COMPILER + CALL + "; import sys; print('numba' in sys.modules)", NUMBA_CACHE_DIR=str(compiled))
    assert again.stdout == "7\nFalse\n"
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert {path.suffix for path in compiled.iterdir()} == {".o", ".lock"}


class Compiler:
    """In place of the compiler's process, to count: what it makes is no code, and nobody loads it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.runs = 0
        self.files = object_files.ObjectFiles("tests.kernels.sample_kernels", [Path(__file__)])
        self.name = self.files._name()
        self._patch = monkeypatch
        monkeypatch.setattr(object_files, "_compiled", self._compiled)
        self.temporary = folder / "temporary"
        self.temporary.mkdir()

    def _compiled(self, _home: str) -> bytes:
        self.runs += 1
        return b"code"

    def where(self, home: Path | str = "/dev/null/home", given: Path | str = "", root: Path | str = "") -> Path | None:
        """Return where the code is, with these folders."""
        for name, value in (("HOME", home), ("NUMBA_CACHE_DIR", given), ("TIDEMARK_CACHE", root)):
            self._patch.setenv(name, str(value))
        self._patch.setattr(object_files.tempfile, "tempdir", str(self.temporary))
        found, code = self.files.code()
        assert code == b"code"
        return found


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Compiler:
    return Compiler(monkeypatch, tmp_path)


def test_the_file_is_in_the_first_folder_that_has_it_or_can_be_written(compiler: Compiler, tmp_path: Path) -> None:
    chosen, general, home = (tmp_path / name for name in ("chosen", "general", "home"))
    of_home = home / ".cache" / "tidemark" / "kernels"
    assert compiler.where(home) == of_home / compiler.name
    assert compiler.where(home, given=chosen) == of_home / compiler.name
    assert compiler.runs == 1
    assert compiler.where(given="/dev/null/cache", root=general) == general / "kernels" / compiler.name
    assert compiler.where(given=chosen, root=general) == general / "kernels" / compiler.name
    assert compiler.runs == 2
    assert compiler.where(given=chosen) == chosen / compiler.name
    shared = compiler.temporary / f"tidemark-kernels-{os.geteuid()}"
    assert compiler.where() == compiler.where() == shared / compiler.name
    assert compiler.runs == 4
    shared.chmod(0o777)  # as of somebody else: what he puts there would be executed
    assert compiler.where() is compiler.where() is None  # in memory only
    assert compiler.runs == 6


def test_a_folder_that_cannot_be_used_is_passed_over(compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, root = tmp_path / "given", tmp_path / "root"
    given.mkdir()
    (given / f"{compiler.name}.lock").symlink_to(tmp_path / "of another user")  # a link is not followed
    assert compiler.where(given=given, root=root) == root / "kernels" / compiler.name
    monkeypatch.setattr(object_files.tempfile, "gettempdir", _no_folder)
    assert compiler.where(given="/dev/null/cache") is None


def _no_folder() -> str:
    raise FileNotFoundError("no folder for temporary files")


def test_a_full_disk_does_not_keep_a_process_from_starting(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(object_files.os, "fsync", full)
    compiler.where(given=tmp_path / "given")
    assert [path.name for path in (tmp_path / "given").iterdir()] == [f"{compiler.name}.lock"]


def test_a_file_that_somebody_else_can_write_is_made_again(compiler: Compiler, tmp_path: Path) -> None:
    file = tmp_path / compiler.name
    assert compiler.where(given=tmp_path) == file
    for mode in (0o666, 0o664):
        file.chmod(mode)
        assert compiler.where(given=tmp_path) == file
        assert file.stat().st_mode & 0o777 == 0o644
    if os.geteuid() == 0:
        os.chown(file, 12345, -1)
        assert compiler.where(given=tmp_path) == file
        assert file.stat().st_uid == 0
    assert compiler.runs == (4 if os.geteuid() == 0 else 3)


def test_a_damaged_file_is_made_again(compiler: Compiler, tmp_path: Path) -> None:
    file = tmp_path / compiler.name
    assert compiler.where(given=tmp_path) == file
    whole = file.read_bytes()
    for content in (b"", whole[:20], whole[:-1] + b"!"):
        file.write_bytes(content)
        assert compiler.where(given=tmp_path) == file
        assert file.read_bytes() == whole
    assert compiler.runs == 4


def test_what_an_interrupted_compilation_left_is_removed(compiler: Compiler, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / f"{compiler.name}.part123").write_bytes(b"half")
    compiler.where(given=given)
    assert {path.name for path in given.iterdir()} == {compiler.name, f"{compiler.name}.lock"}


def test_kernels_in_a_folder_that_can_only_be_read_are_used(compiled: Path) -> None:
    assert python(READ_ONLY + NO_COMPILER + CALL, NUMBA_CACHE_DIR=str(compiled)).stdout == "7\n"


def test_kernels_of_other_sources_python_or_features_are_not_used(compiled: Path, tmp_path: Path) -> None:
    (file,) = objects(compiled)
    source = tmp_path / "kernels.py"
    source.write_text("one", "utf-8")
    first = source_hash([source])
    assert source_hash([tmp_path]) == first
    source.write_text("another", "utf-8")
    assert source_hash([source]) != first
    name = "from tests.kernels.sample_kernels import GROUP; print(GROUP._files._name())"
    assert python(name).stdout.strip() == file.name
    other = python(name, NUMBA_CPU_FEATURES="+sse2").stdout.strip()
    assert other != file.name
    assert other.rpartition("-")[0] == file.name.rpartition("-")[0]


def test_processes_that_start_together_compile_once(tmp_path: Path) -> None:
    count = (
        "import subprocess; start = subprocess.Popen\n"
        "def counted(*a, **k):\n    print('compiles'); return start(*a, **k)\n"
        "subprocess.Popen = counted\n"
    )
    command = [sys.executable, "-c", count + CALL]
    environment = {**os.environ, **NOWHERE_ELSE, "NUMBA_CACHE_DIR": str(tmp_path)}
    together = [subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = [one.communicate(timeout=200)[0] for one in together]
    assert sorted(said) == ["7\n", "7\n", "compiles\n7\n"]
    assert len(objects(tmp_path)) == 1


def test_a_failed_compilation_is_said_with_its_reason(tmp_path: Path) -> None:
    failing = "import os\n" + CALL.replace("print", "os.environ.update(SAMPLE_FAILS='1'); print")
    said = python(failing, check=False, NUMBA_CACHE_DIR=str(tmp_path)).stderr.strip()
    assert "KernelError: the kernels of tests.kernels.sample_kernels could not be compiled: the compiler ended with exit code 1\n" in said
    assert said.endswith("RuntimeError: this sample fails")
    assert objects(tmp_path) == []


@pytest.mark.parametrize(("code", "expected"), [(3, "exit code 3\nfirst"), (-9, "SIGKILL; it needs 300 MiB of memory"), (-15, "SIGTERM\nfirst")])
def test_how_the_compiler_ended_is_said(code: int, expected: str) -> None:
    said = _end_of(code, b"first\n" * 20 + b"last\n")
    assert expected in said
    assert said.endswith("\nfirst\nlast")
    assert len(said.splitlines()) == 16


def test_a_file_without_a_kernel_is_named(compiled: Path) -> None:
    (file,) = objects(compiled)
    library = Library(file, file.read_bytes()[32:])
    assert library.function("sample_kernels.nothing")() == 7
    with pytest.raises(KernelError, match=f"the compiled kernels in {file} cannot be used: it has no function x.y. Remove the file"):
        library.function("x.y")


def test_a_python_with_other_objects_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernels.loader.BYTES_HEADER", 48)
    with pytest.raises(KernelError, match="kernels need a 64-bit CPython with the GIL"):
        Library(None, b"")


def test_nothing_is_imported_or_read_from_where_a_process_is_started(tmp_path: Path) -> None:
    start = tmp_path / "start"
    (start / "kernels").mkdir(parents=True)
    (start / "kernels" / "__init__.py").write_text("raise RuntimeError('of the user')", "utf-8")
    (start / "numbers.py").write_text("raise RuntimeError('of the user')", "utf-8")
    (start / ".numba_config.yaml").write_text("disable_jit: 1\n", "utf-8")
    code = f"import sys; sys.path[0] = {str(ROOT)!r}\n" + CALL
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=start, check=False, capture_output=True, text=True, timeout=200,
        env={**os.environ, **NOWHERE_ELSE, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": ""},
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("7\n", "")


def test_variables_of_numba_that_change_the_code_are_not_seen_by_it(compiled: Path, tmp_path: Path) -> None:
    (file,) = objects(compiled)
    python(CALL, NUMBA_CACHE_DIR=str(tmp_path), NUMBA_BOUNDSCHECK="1", NUMBA_DEBUGINFO="1")
    assert [one.name for one in objects(tmp_path)] == [file.name]
    assert objects(tmp_path)[0].read_bytes() == file.read_bytes()


def test_kernels_can_be_compiled_for_another_processor(compiled: Path, tmp_path: Path) -> None:
    """As in an image for nodes of several kinds: then the name of the file does not depend on the node."""
    asked = {"NUMBA_CPU_NAME": "x86-64-v2", "NUMBA_CPU_FEATURES": "+sse4.2"} if platform.machine() == "x86_64" else {"NUMBA_CPU_NAME": "generic"}
    other_host = "import llvmlite.binding as b; b.get_host_cpu_name = lambda: 'another'\n" if len(asked) == 2 else ""
    assert python(CALL, NUMBA_CACHE_DIR=str(tmp_path), **asked).stdout == "7\n"
    assert python(other_host + NO_COMPILER + CALL, NUMBA_CACHE_DIR=str(tmp_path), **asked).stdout == "7\n"
    assert objects(tmp_path)[0].name != objects(compiled)[0].name


def test_the_compiler_ends_with_the_process_that_waits_for_it(tmp_path: Path) -> None:
    code = "import os\n" + CALL.replace("print", "os.environ.update(SAMPLE_WAITS='1'); print")
    waiting = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, **NOWHERE_ELSE, "NUMBA_CACHE_DIR": str(tmp_path)}
    )
    compiler = None
    for _ in range(200):
        compiler = next(iter(Path(f"/proc/{waiting.pid}/task/{waiting.pid}/children").read_text("ascii").split()), None)
        if compiler is not None and b"compiler" in Path(f"/proc/{compiler}/cmdline").read_bytes():
            break
        time.sleep(0.05)
    assert compiler is not None
    waiting.kill()
    waiting.wait()
    for _ in range(200):
        if not Path(f"/proc/{compiler}").exists():
            return
        time.sleep(0.05)
    pytest.fail("the compiler still runs")
