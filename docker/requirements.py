"""Print the packages that the given extras of pyproject.toml need: `python requirements.py producer verify`.

The images install these in a layer of their own, so that a change of a source file does not fetch them again.
"""

import sys
import tomllib
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
packages = project["dependencies"] + [one for extra in sys.argv[1:] for one in project["optional-dependencies"][extra]]
print("\n".join(packages))
