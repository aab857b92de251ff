# task.sh FOLDER SECONDS NAME:UNITS:OF...: hold UNITS of the OF units of each resource of this node, and tell of it.
# Locks last as long as any process of the task, whoever ends it; FOLDER/told has a line per beginning, end or refusal.
folder=$1 seconds=$2
shift 2
node=${VOLERY_NODE#node/}
held=task-$VOLERY_TASK

tell() {
    echo "$1 $VOLERY_JOB $VOLERY_INDEX $VOLERY_ATTEMPT $node ${EPOCHREALTIME/[^0-9]/} $held" >>"$folder/told"
}

refuse() {
    tell refused
    exit "$1"
}

exec 9>"$folder/locks/task-$VOLERY_TASK"
flock -n 9 || refuse 98
for resource; do
    IFS=: read -r name units of <<<"$resource"
    for ((unit = 0; unit < of && units > 0; unit++)); do
        lock=node-$node-$name-$unit
        exec {opened}>"$folder/locks/$lock"
        if flock -n "$opened"; then
            units=$((units - 1))
            held=$held,$lock
        else
            exec {opened}>&-
        fi
    done
    ((units == 0)) || refuse 99
done
tell began
sleep "$seconds"
tell ended
