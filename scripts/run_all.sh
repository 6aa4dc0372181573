#!/bin/sh
# usage: run_all.sh FOLDER PYTHON
# Runs every script in FOLDER as a module, in name order, and stops at the first that fails. Files whose name begins with _ are
# helpers of the others.
set -eu

folder=$1
python=$2
found=0

for script in "$folder"/[!_]*.py; do
    [ -e "$script" ] || continue
    found=1
    module=$(echo "${script%.py}" | tr / .)
    echo "== python -m $module"
    "$python" -m "$module"
done

[ "$found" = 1 ] || echo "There are no scripts in $folder/ yet."
