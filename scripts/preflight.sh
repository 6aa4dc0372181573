#!/bin/sh
# Checks what Kasen needs from the machine: Python 3.11 with venv, and Java 17 for Spark.
# Prints the path of the Python to use on standard output; complaints, all of them at once, go to standard error.
set -u

problems=0

complain() { # what is wrong, Debian's remedy, macOS's remedy
    problems=$((problems + 1))
    printf 'kasen: %s\n' "$1" >&2
    printf '    Debian, Ubuntu:  %s\n' "$2" >&2
    printf '    macOS:           %s\n' "$3" >&2
}

# --- Python: the newest that the pinned versions have been tried with comes first
python=
seen=
for candidate in python3.13 python3.12 python3.11 python3; do
    path=$(command -v "$candidate" 2>/dev/null) || continue
    version=$("$path" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    seen="$seen $candidate is $version;"
    if "$path" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
        python=$path
        break
    fi
done

if [ -z "$python" ]; then
    if [ -n "$seen" ]; then
        what="Python is too old: 3.11 or later is needed, but${seen%;}."
    else
        what="Python is missing: no python3 on the PATH; 3.11 or later is needed."
    fi
    complain "$what" \
        "sudo apt install python3 python3-venv   (Debian 12, Ubuntu 24.04 or later)" \
        "brew install python@3.13"
elif ! "$python" -c 'import venv, ensurepip' 2>/dev/null; then
    complain "$python cannot make virtual environments: its venv module is missing." \
        "sudo apt install python$version-venv" \
        "brew reinstall python@$version"
fi

# --- Java: Spark takes JAVA_HOME if it is set, else the java on the PATH; so do we
if [ -n "${JAVA_HOME:-}" ]; then
    java=$JAVA_HOME/bin/java
    where="JAVA_HOME=$JAVA_HOME"
else
    java=java
    where="the PATH"
fi

# 'openjdk version "17.0.15" ...'; Java 8 and before call themselves 1.8
java_version=$("$java" -version 2>&1 | sed -n 's/.*version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1)
apt_java="sudo apt install openjdk-17-jre-headless   (or a later one: openjdk-21-jre-headless)"
brew_java="brew install openjdk@17, then export JAVA_HOME=\"\$(brew --prefix openjdk@17)\""

if [ -z "$java_version" ]; then
    complain "Java is missing: no working java in $where; 17 or later is needed." "$apt_java" "$brew_java"
elif [ "$java_version" -lt 17 ]; then
    complain "Java is too old: the one in $where is $java_version; 17 or later is needed." "$apt_java" "$brew_java"
fi

[ "$problems" = 0 ] || exit 1
echo "$python"
