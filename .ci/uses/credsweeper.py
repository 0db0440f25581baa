# requires: credsweeper==1.19.5
import json
from pathlib import Path

from credsweeper.app import CredSweeper
from credsweeper.file_handler.files_provider import FilesProvider

Path("code.py").write_text('password = "Tj3K!9sLq2#x"\ntoken = "AKIAQWERTYUIOPASDFGH"\nname = "admin"\n')
sweeper = CredSweeper(json_filename="found.json", ml_threshold=0.0)
sweeper.run(content_provider=FilesProvider(["code.py"]))
result = json.loads(Path("found.json").read_text())
