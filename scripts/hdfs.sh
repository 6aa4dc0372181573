#!/bin/sh
# usage: hdfs.sh
# Brings what tests need to start a real HDFS (a NameNode and a DataNode), of the version that Spark's own client has. Needs Maven.
set -eu

jars=$(.venv/bin/python -c 'import pyspark; print(pyspark.__path__[0])')/jars
client=$(basename "$jars"/hadoop-client-api-*.jar .jar)
version=${client#hadoop-client-api-}
jar=.venv/hdfs/hadoop-client-minicluster-$version.jar

[ -e "$jar" ] && exit 0
command -v mvn >/dev/null || { echo "hdfs.sh: no mvn on the PATH; Debian, Ubuntu: sudo apt install maven" >&2; exit 1; }
echo "Bringing HDFS $version, for tests."
mvn -q dependency:copy -Dartifact=org.apache.hadoop:hadoop-client-minicluster:"$version" -DoutputDirectory="$PWD/.venv/hdfs"
