#!/bin/sh
# usage: run_all.sh FOLDER PYTHON
# Runs every script in FOLDER, in name order, and stops at the first that fails. Files whose name begins with _ are
# helpers of the others.
set -eu

folder=$1
python=$2
found=0

for script in "$folder"/[!_]*.py; do
    [ -e "$script" ] || continue
    found=1
    echo "== $script"
    "$python" "$script"
done

[ "$found" = 1 ] || echo "There are no scripts in $folder/ yet."
