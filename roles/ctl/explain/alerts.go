package explain

// Alert is a rule for Prometheus with its entry of the runbook.
type Alert struct {
	Entry
	Expr     string
	For      string // how long it must be true
	Severity string // critical: somebody is called; warning: it can wait for the day
	Summary  string // one line, with the labels of the series
}

// alertNamed begins the name of every alert.
const alertNamed = "TakReplicated"

// Alerts returns all alerts, the worst first.
func Alerts() []Alert {
	all := make([]Alert, len(alerts))
	for i, a := range alerts {
		a.Name, a.Where = alertNamed+a.Name, AlertPlace
		all[i] = a
	}
	return all
}

func alertEntries() (entries []Entry) {
	for _, a := range Alerts() {
		entries = append(entries, a.Entry)
	}
	return entries
}

const status = "`tak-replicated ctl status`"

var alerts = []Alert{
	{Entry{Name: "StateLost", Meaning: "A recorded replica has lost its journal or identity. The volume goes on with the others, and one failure less is survived. What application data is lost is unknown; what the other replicas have is not concerned.",
		Check: describe, Do: "see the condition StateLost: mount the right disk, or replace the replica with `tak-replicated ctl replace`"},
		`tak_replicated_manager_volumes_state_lost > 0`, "0m", "critical",
		"{{ $value }} volumes have a replica that lost its state"},
	{Entry{Name: "VolumeUnavailable", Meaning: "No coordinator with a quorum answers for a volume. Operations on it wait for --quorum-wait, then fail with EIO.",
		Check: describe, Do: "bring the replicas' nodes, or the network between them, back; service returns by itself"},
		`tak_replicated_manager_volume_condition{condition="Available"} == 0`, "2m", "critical",
		"volume {{ $labels.volume }} has no quorum"},
	{Entry{Name: "ScrubDamage", Meaning: "A scrub found damaged pages that no other replica could mend, or records on which the replicas do not agree.",
		Check: status + " --json shows `scrub`", Do: "with three or more replicas: replace the replica on the failing disk. With one or two: restore the damaged files, which read as EIO, from a backup"},
		`tak_replicated_replica_scrub_left_pages > 0 or increase(tak_replicated_replica_scrub_differing_ranges_total[1h]) > 0`, "0m", "critical",
		"replica {{ $labels.replica }} of volume {{ $labels.volume }} is damaged"},
	{Entry{Name: "CredentialExpiring", Meaning: "A replica's certificate expires within two weeks. It is renewed half way through its 90 days, so renewal has failed for a month.",
		Check: managerLogs, Do: "see that a manager runs and may write Secrets, and that hosts can read them; once expired, replicas refuse each other"},
		`tak_replicated_credential_expiry_timestamp_seconds - time() < 14 * 86400`, "10m", "critical",
		"certificate {{ $labels.credential }} of replica {{ $labels.replica }} of volume {{ $labels.volume }} expires soon"},
	{Entry{Name: "TokenExpiring", Meaning: "A mount's bearer token, which lives for 24 hours and is renewed at half of that, expires within 6 hours. After that the mount can't attach to another coordinator.",
		Check: managerLogs, Do: "bring the API server and a manager back; tokens are renewed within minutes"},
		`tak_replicated_client_credential_expiry_timestamp_seconds{credential="token"} - time() < 6 * 3600`, "10m", "critical",
		"the token of the mounts of volume {{ $labels.volume }} on {{ $labels.instance }} expires soon"},
	{Entry{Name: "MountErrors", Meaning: "Applications get EIO: no quorum answered in time, or a session ended under its mount.",
		Check: status + ", and the mount owner's logs on that node", Do: "bring the quorum back; applications that keep failing have to be restarted, since an error of fsync is reported only once"},
		`sum by (volume, instance) (rate(tak_replicated_kernel_request_errors_total{error="EIO"}[5m])) > 0`, "5m", "critical",
		"applications on {{ $labels.instance }} get EIO from volume {{ $labels.volume }}"},
	{Entry{Name: "MountDetached", Meaning: "A mount has no coordinator: operations on it wait.",
		Check: status, Do: "see whether the volume has a quorum; if it has, look at the network between that node and the replicas' Services"},
		`tak_replicated_mounts_attached < tak_replicated_mounts`, "2m", "warning",
		"a mount of volume {{ $labels.volume }} on {{ $labels.instance }} has no coordinator"},
	{Entry{Name: "VolumeDegraded", Meaning: "A volume has fewer replicas that take part and are caught up than it is to have. It serves, and survives fewer failures.",
		Check: describe, Do: "find the replica that is missing in status.replicas and look up its reason"},
		`tak_replicated_manager_volume_ready_replicas < tak_replicated_manager_volume_replicas`, "15m", "warning",
		"volume {{ $labels.volume }} has {{ $value }} replicas that are ready"},
	{Entry{Name: "DiskFull", Meaning: "The disk of a replica has hardly more than its reserve left. Growth of the volume is refused with ENOSPC; removing and truncating work.",
		Check: "`df` on the mount shows the tightest replica", Do: "remove files, or give that replica's disk more room"},
		`tak_replicated_replica_disk_free_bytes < 1.1 * tak_replicated_replica_disk_reserve_bytes`, "5m", "critical",
		"the disk of replica {{ $labels.replica }} of volume {{ $labels.volume }} is full"},
	{Entry{Name: "DiskFilling", Meaning: "The disk of a replica is expected to reach its reserve within a day.",
		Check: "`df` on the mount", Do: "make room before growth is refused"},
		`predict_linear(tak_replicated_replica_disk_free_bytes[6h], 86400) < tak_replicated_replica_disk_reserve_bytes`, "1h", "warning",
		"the disk of replica {{ $labels.replica }} of volume {{ $labels.volume }} is full within a day"},
	{Entry{Name: "QuotaNearlyUsed", Meaning: "A volume with an enforced size has less than 5 % of it left. At the size, growth is refused with ENOSPC.",
		Check: "`df` on the mount", Do: "remove files, or move to a larger volume"},
		`tak_replicated_replica_quota_bytes > 0 and tak_replicated_replica_used_bytes > 0.95 * tak_replicated_replica_quota_bytes`, "5m", "warning",
		"volume {{ $labels.volume }} is nearly at its size"},
	{Entry{Name: "ReplicaLagging", Meaning: "A member has been thousands of entries behind for a quarter of an hour.",
		Check: status + " shows lag and rebuilds", Do: "nothing while it shrinks; else look at that node's disk and network"},
		`tak_replicated_replica_member_lag_entries_max > 10000`, "15m", "warning",
		"a member of volume {{ $labels.volume }} is {{ $value }} entries behind"},
	{Entry{Name: "RebuildStuck", Meaning: "A replica has been receiving a checkpoint, and nothing came for a quarter of an hour.",
		Check: hostLogs, Do: "see whether the coordinator's host sends as many checkpoints as it may (--max-rebuilds); else look at the network. `tak-replicated ctl status` says if the replica's disk has no room for a second copy"},
		`tak_replicated_replica_rebuild_receiving == 1 and deriv(tak_replicated_replica_rebuild_received_bytes[15m]) == 0`, "15m", "warning",
		"replica {{ $labels.replica }} of volume {{ $labels.volume }} does not get on with its rebuild"},
	{Entry{Name: "SlowJournal", Meaning: "Writes of a replica's journal take long. Each confirmed operation waits for the journals of a majority.",
		Check: "`tak-replicated ctl check` measures the disk", Do: "move other load away from that disk, or replace it"},
		`histogram_quantile(0.9, sum by (volume, replica, le) (rate(tak_replicated_replica_journal_write_duration_seconds_bucket[10m]))) > 0.25`, "15m", "warning",
		"a tenth of the journal writes of replica {{ $labels.replica }} of volume {{ $labels.volume }} take over {{ $value }} s"},
	{Entry{Name: "Elections", Meaning: "A volume changes its coordinator again and again. Each time operations wait for about a second.",
		Check: "the replicas' logs, for `role` and `journal write hangs`", Do: "look for a node that is overloaded, a disk that hangs, or a network that loses packets"},
		`sum by (volume) (increase(tak_replicated_replica_elections_won_total[30m])) > 5`, "0m", "warning",
		"volume {{ $labels.volume }} had {{ $value }} elections in half an hour"},
	{Entry{Name: "QueueFull", Meaning: "What a coordinator has proposed and not applied is near its bound: clients are slowed down.",
		Check: "the dashboard's page of that volume: journal and commit times", Do: "a slow disk or network of a majority is the cause, see SlowJournal; or of one copy, if the coordinator logs `proposals wait for a slow member`"},
		`tak_replicated_replica_proposal_bytes > 0.9 * tak_replicated_replica_proposal_limit_bytes or tak_replicated_replica_proposals > 0.9 * tak_replicated_replica_proposals_limit`, "10m", "warning",
		"the log of volume {{ $labels.volume }} is at its bound"},
	{Entry{Name: "CheckpointOld", Meaning: "A replica's journal holds more than half of what it may, and its newest checkpoint is older than a day: checkpoints do not get done, and the next start takes long.",
		Check: hostLogs, Do: "look for a slow or full disk"},
		`time() - tak_replicated_replica_checkpoint_timestamp_seconds > 86400 and tak_replicated_replica_journal_bytes > 0.5 * tak_replicated_replica_journal_limit_bytes and tak_replicated_replica_checkpoint_timestamp_seconds > 0 and increase(tak_replicated_replica_journal_written_bytes_total[1d]) > 134217728`, "1h", "warning",
		"replica {{ $labels.replica }} of volume {{ $labels.volume }} takes no checkpoints"},
	{Entry{Name: "HostFull", Meaning: "A node serves as many replicas as it may. Others that are placed there wait with the reason TooManyWorkers.",
		Check: status, Do: "add a node, or raise --max-workers together with the host's memory"},
		`tak_replicated_host_places{of="workers"} >= tak_replicated_host_places_limit{of="workers"}`, "10m", "warning",
		"{{ $labels.instance }} serves as many replicas as it may"},
	{Entry{Name: "NoManager", Meaning: "No manager acts. Volumes that are mounted go on; none are made, destroyed or given fresh credentials.",
		Check: managerLogs, Do: "see that the Deployment runs and reaches the API server; tokens live for 24 hours"},
		`absent(tak_replicated_manager_leading == 1)`, "10m", "critical",
		"no manager acts"},
	{Entry{Name: "ReconcileErrors", Meaning: "A manager can't bring volumes in line with what is asked.",
		Check: managerLogs, Do: "the log says what failed; usually the API server refuses, or a replica can't be reached"},
		`rate(tak_replicated_manager_passes_total{outcome="failed"}[10m]) > 0.1`, "15m", "warning",
		"passes over volumes fail at {{ $labels.instance }}"},
	{Entry{Name: "CallErrors", Meaning: "The CSI services answer with internal errors.",
		Check: "the logs of that role on that node", Do: "look up the message; the kubelet and the provisioner ask again by themselves"},
		`sum by (instance, method) (rate(tak_replicated_call_duration_seconds_count{code=~"Internal|Unknown"}[10m])) > 0`, "15m", "warning",
		"{{ $labels.method }} fails at {{ $labels.instance }}"},
	{Entry{Name: "NotRegistered", Meaning: "The kubelet has not taken a driver in: nothing of that driver can be mounted on the node.",
		Check: "the registrar's logs on that node", Do: "see that --kubelet-dir is the kubelet's folder"},
		`tak_replicated_registrar_registered == 0`, "5m", "warning",
		"the kubelet of {{ $labels.instance }} does not know {{ $labels.socket }}"},
}
