#!/bin/sh
# Makes .venv and installs this checkout with the given extras: tools/setup.sh producer,spark,verify
#
# pyspark comes as a 456 MB source archive. It is made into a wheel once, beside the rest of the installation,
# and kept in the cache folder ($TIDEMARK_CACHE, else ~/.cache/tidemark). Interrupted, it leaves no process.
set -eu
cd "$(dirname "$0")/.."
extras=$1
python=${PYTHON:-python3}
wheels=${TIDEMARK_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tidemark}/wheels
began=$(date +%s)
work= builder= running= compiler=

say() { printf 'setup: %s\n' "$*" >&2; }
fail() { say "$*"; exit 1; }

# Every longer command has a session of its own, so that it can be ended together with its children.
cleanup() {
    for group in $builder $running $compiler; do kill -TERM "-$group" 2>/dev/null || true; done
    [ -z "$work" ] || rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

run() {
    setsid "$@" &
    running=$!
    status=0
    wait "$running" || status=$?
    running=
    return "$status"
}

pip() { run .venv/bin/python -m pip --disable-pip-version-check "$@" >&2; }

check_python() {
    command -v "$python" >/dev/null \
        || fail "no $python: Tidemark needs Python 3.11 or newer (Debian: apt install python3 python3-venv)"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
        || fail "$("$python" --version) is too old: Tidemark needs 3.11 or newer; name another with PYTHON=..."
}

make_venv() {
    say "making .venv with $("$python" --version)"
    rm -rf .venv
    if "$python" -c 'import ensurepip, venv' 2>/dev/null && run "$python" -m venv .venv >/dev/null 2>&1; then
        return
    fi
    # Debian without python3-venv: an environment without pip, filled by the machine's own pip.
    rm -rf .venv
    "$python" -m pip --version >/dev/null 2>&1 && "$python" -m venv --without-pip .venv 2>/dev/null \
        || fail "$python has no venv and no pip to do without (Debian: apt install python3-venv)"
    run "$python" -m pip --python .venv/bin/python install --quiet pip \
        || fail "pip could not be installed into .venv (Debian: apt install python3-venv)"
}

# Starts making the wheel of pyspark in the background, unless it is in the cache or installed.
start_spark_wheel() {
    spark=$(sed -n 's/^ *"\(pyspark==[0-9.]*\)".*/\1/p' pyproject.toml | head -n 1)
    version=${spark#pyspark==}
    [ -f "$wheels/pyspark-$version-py2.py3-none-any.whl" ] && return
    .venv/bin/python -c "import sys, importlib.metadata as m; sys.exit(m.version('pyspark') != '$version')" \
        2>/dev/null && return
    say "fetching $spark (456 MB) and making a wheel of it, about a minute"
    mkdir -p "$wheels"
    work=$(mktemp -d "$wheels/build.XXXXXX")
    TMPDIR=$work setsid .venv/bin/python -m pip --disable-pip-version-check wheel --no-deps --no-cache-dir \
        --use-pep517 --quiet --wheel-dir "$work/out" "$spark" >&2 &
    builder=$!
}

# The producer's kernels are compiled once for each version of their source, into the cache folder.
start_kernels() {
    setsid .venv/bin/python -c 'from producer.all_kernels import load; load()' &
    compiler=$!
}

# Python keeps the bytecode of what it imports, unless PYTHONDONTWRITEBYTECODE tells it not to: each start of a command and of a
# worker would compile 2 seconds long. So what they import is imported once here; the merge's kernels are compiled, too.
keep_bytecode() {
    run env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -c "$1" >/dev/null 2>&1 || say "bytecode could not be kept: starts are slower"
}

finish_kernels() {
    [ -n "$compiler" ] || return 0
    wait "$compiler" || say "the kernels could not be compiled ahead; \`tidemark run\` will say why"
    compiler=
}

finish_spark_wheel() {
    [ -n "$builder" ] || return 0
    say "waiting for the wheel of pyspark"
    wait "$builder" || { builder=; fail "pyspark could not be fetched or made into a wheel"; }
    builder=
    mv "$work"/out/pyspark-*.whl "$wheels/"
}

check_python
.venv/bin/python -m pip --version >/dev/null 2>&1 || make_venv
case ,$extras, in *,spark,*) start_spark_wheel ;; esac

# All but Spark first: many small files, on the other core.
others=$(printf %s "$extras" | tr , '\n' | grep -vx spark | paste -sd, -)
say "installing the packages of [$others]"
pip install --no-compile --editable ".[$others]" || fail "pip could not install [$others]"

case ,$extras, in *,producer,*) start_kernels ;; esac
case ,$extras, in *,spark,*)
    finish_spark_wheel
    say "installing Spark"
    pip install --no-compile --quiet --find-links "$wheels" --editable ".[$extras]" \
        || fail "pip could not install [$extras]"
    # Spark starts with half the work where its classes are in an archive. Made once for all checkouts, in a minute.
    # The tests start it with the jars of every sink, which is another archive.
    case ,$extras, in *,test,*) archives="--share --all" ;; *) archives=--share ;; esac
    run .venv/bin/python -m tidemark.runtime.spark_classes $archives >/dev/null 2>&1 \
        || say "the classes of Spark could not be archived: \`tidemark merge\` starts slower"
    keep_bytecode 'import tidemark.commands.merge, spark_jobs.jobs.merge_job, spark_jobs.jobs.worker_daemon as d
for name in d.NEEDED: d.import_module(name)
from spark_jobs.arrow import worker_kernels
worker_kernels.GROUP.load()' ;;
esac
finish_kernels
case ,$extras, in *,producer,*) keep_bytecode 'import tidemark.commands.run, producer.app' ;; esac
say "done in $(($(date +%s) - began)) s"
