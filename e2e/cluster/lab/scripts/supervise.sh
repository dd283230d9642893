# supervise.sh, sourced by a pid 1 that has set LOGS, PIDS and CONTROL: `daemon NAME COMMAND...`
# starts a daemon; `supervise` keeps all of them running, reaps orphans, and does what lines
# "VERB NAME" in the fifo $CONTROL ask: stop (SIGTERM, stays away), kill (SIGKILL, stays away),
# crash (SIGKILL, comes back), start.
declare -A command pid away
names=()
daemon() {
  local name=$1
  shift
  command[$name]=$(printf '%q ' "$@")
  names+=("$name")
  launch "$name"
}
launch() {
  eval "exec ${command[$1]}" >>"$LOGS/$1.log" 2>&1 9>&- &
  pid[$1]=$!
  echo $! >"$PIDS/$1"
}
running() { [ -n "${pid[$1]}" ] && kill -0 "${pid[$1]}" 2>/dev/null; }
end() { # NAME SIGNAL
  away[$1]=1
  running "$1" || return
  kill "-$2" "${pid[$1]}"
  for _ in {1..100}; do
    running "$1" || break
    sleep 0.05
  done
  kill -KILL "${pid[$1]}" 2>/dev/null
  wait "${pid[$1]}" 2>/dev/null
  pid[$1]=
}
supervise() {
  local verb name
  [ -p "$CONTROL" ] || mkfifo "$CONTROL"
  exec 9<>"$CONTROL" # open for both, so that it does not end when a writer goes
  while :; do
    verb=
    read -r -t 1 -u 9 verb name
    case $verb in
      stop) end "$name" TERM ;;
      kill) end "$name" KILL ;;
      crash) end "$name" KILL; away[$name]= ;;
      start) away[$name]= ;;
    esac
    for name in "${names[@]}"; do
      [ -n "${away[$name]}" ] || running "$name" || launch "$name"
    done
  done
}
