package explain

var failures = []Entry{
	{"not coordinator", Failure, "The replica that was asked does not lead. The client asks the one that does.", "", ""},
	{"no quorum", Failure, "No coordinator could confirm its authority within the time that the mount waits (--quorum-wait).", "`tak-replicated ctl status`", "bring replicas back; operations that were given up may still have happened, see docs/replication.md"},
	{"uncertain", Failure, "The operation was proposed, and whether it happened is not known. Clients repeat it under the same number, so that it happens once.", "", ""},
	{"fenced", Failure, "The session has ended or another process goes on with it; nothing of the old one is accepted.", "logs of the mount owner", "files that were open answer EIO until they are opened again; a read-write-once volume whose owner changed has to be unstaged on the old node"},
	{"denied", Failure, "Certificate or token do not allow it, or have expired.", "logs of the worker", "check that credentials are renewed (condition Trusted) and that clocks agree"},
	{"busy", Failure, "A bound on requests, bytes or sessions is reached.", "metrics of the worker", "retry; if it lasts, raise the bound that the message names"},
	{"replica state lost", Failure, "The replica that was asked has lost its state.", "", "see ReplicaStateLost"},
	{"malformed request", Failure, "A request could not be understood: a fault of the program, or somebody who should not be there.", "logs of the worker", "report it with both versions"},
}

var errnos = []Entry{
	{"EIO", Errno, "No answer is known: the quorum was away for longer than the mount waits, the session was fenced, or contents are damaged in every copy that could be asked. The operation may or may not have happened.", "`tak-replicated ctl status`", "after fsync fails, what was written since the last fsync must be written again"},
	{"ENOSPC", Errno, "The fullest replica's disk, or the quota, has no room for growth. Removing and truncating still work.", "`df` and `df -i` on the mount show the tightest replica", "remove files, or give the fullest disk more room; nothing has to be restarted"},
	{"ENOTCONN", Errno, "The mount's server has ended and no keeper could go on with it.", "`kubectl -n kube-system get pods -o wide`", "restart the Pods that used the mount; a new Pod mounts anew"},
	{"ESTALE", Errno, "What the application holds is no more: another node has removed its working directory, a FIFO, or what it opened with O_PATH; or moved folders on the path at that moment. A regular file that is open stays readable.", "", "look the path up again"},
	{"ENOLCK", Errno, "A bound on locks is reached: 4,096 ranges on one file, 65,536 holders or 4,096 waiting calls of one mount.", "/proc/locks on that node", "find the application that never unlocks"},
	{"ENFILE", Errno, "A mount has 262,144 open files, which is its bound.", "`lsof` on that node", "find the application that never closes"},
	{"EINTR", Errno, "A signal came while the call waited, as on any filesystem. The operation may or may not have happened.", "", "repeat the call, as for an uncertain result"},
	{"EOPNOTSUPP", Errno, "The call is not supported, for instance POSIX ACLs.", "docs: README, limits", "do without it"},
}

var exits = []Entry{
	{"1", Exit, "The role ended with an error that its last line says.", "", ""},
	{"2", Exit, "The command line or a configuration is wrong; the line says what.", "", "correct it"},
	{"3", Exit, "ReplicaStateLost: the worker found its replica's state missing or cut, and will not begin afresh.", "", "see ReplicaStateLost"},
	{"4", Exit, "Of `ctl status`: a volume is degraded; it serves, and survives fewer failures. Of `worker`: its replica was replaced, and this copy is no member any more.", "what it printed", "of `ctl status`: see the reason that it printed; of `worker`: nothing, the folder can be deleted"},
	{"5", Exit, "Of `ctl status`: a volume is unavailable. Operations on it wait or fail.", "what it printed", "see the reason that it printed"},
}
