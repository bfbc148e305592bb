#!/bin/sh
# One task of a bench graph: step.sh RECORD NAME SECONDS
#
# Appends `start NAME ATTEMPT PID TIME` to RECORD, sleeps, appends `end ...`. Each line is one write by one process
# (date) to a file opened for appending, so the order of the lines is the order of what happened; `sync` puts it on the
# disk. This costs about 6 ms of processor time, a third of what starting Python costs.
set -eu

record=$1
name=$2
seconds=$3

note() {
    date "+$1 $name $SCHEDD_ATTEMPT $$ %s.%N" >>"$record"
    sync -d "$record"
}

note start
sleep "$seconds"
note end
