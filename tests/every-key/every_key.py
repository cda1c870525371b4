"""A suite's configuration with every key on that must not change its outcome."""

import pathlib
import shutil

HERE = pathlib.Path(__file__).resolve().parent
EVERYTHING = 'match.path = "/**"'
# Every path but those of the routes that every-key.toml adds, which follow.
NEARLY = 'match.path = "~^/([^e]|$)"'


def write(config, folder):
    """Writes the variant of the file `config` into the folder, and returns its path."""
    keys = (HERE / "route.toml").read_text()
    text = config.read_text().replace(EVERYTHING, NEARLY)
    text = text.replace("[[route]]\n", f"[[route]]\n{keys}")
    file = folder / config.name
    file.write_text(f'include = ["every-key.toml"]\n{text}')
    further = (HERE / "every-key.toml").read_text()
    # The last route is that of all other requests.
    (folder / "every-key.toml").write_text(f"{further}{keys}")
    shutil.copyfile(HERE / "every-key.html", folder / "every-key.html")
    return file
