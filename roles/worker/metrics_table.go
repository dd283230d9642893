package worker

import "tak-os.org/tak-replicated/roles/boot/metric"

// Metrics is what a worker shows of its replica.
var Metrics = metric.Table{Role: "worker, replica-host, dev", Defs: append(gauges(
	"replica_coordinator", "1 when this replica's worker is the coordinator.",
	"replica_coordinator_known", "1 when the replica knows a coordinator.",
	"replica_serving", "1 when the replica's state is complete enough to be read.",
	"replica_start_timestamp_seconds", "When the worker was started, in seconds since 1970.",
	"replica_term", "Raft term.",
	"replica_commit_index", "Log index known to be on a quorum.",
	"replica_applied_index", "Log index applied to the replica's files.",
	"replica_apply_lag_entries", "Entries known to be on a quorum and not applied here.",
	"replica_member_lag_entries_max", "Entries that the member furthest behind lacks; the coordinator knows.",
	"replica_members", "Members of the volume as this replica knows them.",
	"replica_members_active", "Members heard of lately, this one too; the coordinator knows of others.",
	"replica_journal_bytes", "Disk space of the journal.",
	"replica_journal_limit_bytes", "Disk space that the journal may take.",
	"replica_journal_entries", "Entries in the journal.",
	"replica_checkpoint_index", "Log index of the newest checkpoint.",
	"replica_checkpoint_timestamp_seconds", "When the newest checkpoint became durable, in seconds since 1970; 0 for none.",
	"replica_checkpoint_metadata_bytes", "Size of the newest checkpoint's metadata; its contents are the files in use.",
	"replica_proposals", "Entries proposed here and not applied.",
	"replica_proposals_limit", "Bound of replica_proposals.",
	"replica_proposal_bytes", "Bytes proposed here and not applied.",
	"replica_proposal_limit_bytes", "Bound of replica_proposal_bytes.",
	"replica_sessions", "Sessions in the log.",
	"replica_sessions_attached", "Sessions connected to this coordinator.",
	"replica_leases", "Inodes leased by this coordinator, once for each session.",
	"replica_mutations_waiting", "Mutations that wait for the recall of a lease, or behind one that does.",
	"replica_mutations_in_log", "Mutations proposed and not applied.",
	"replica_entries_in_log", "The coordinator's entries proposed and not applied; beyond the limit mutations gather.",
	"replica_entries_in_log_limit", "Bound of replica_entries_in_log.",
	"replica_lock_waits", "Lock requests that wait for the lock.",
	"replica_connections", "Connections to the replica's port.",
	"replica_used_bytes", "Bytes allocated by files.",
	"replica_used_inodes", "Inodes in use.",
	"replica_quota_bytes", "Bytes that files may take; 0 when no quota is enforced.",
	"replica_quota_inodes", "Inodes that there may be; 0 when no quota is enforced.",
	"replica_disk_bytes", "Size of the replica's disk.",
	"replica_disk_free_bytes", "Free space of the replica's disk.",
	"replica_disk_reserve_bytes", "Space of the replica's disk that is kept from files.",
	"replica_rebuild_receiving", "1 while the replica receives a checkpoint.",
	"replica_rebuild_received_bytes", "Bytes received of the checkpoint that is on its way, 0 for none; the coordinator's replica_used_bytes is about its size.",
	"replica_rebuilds_sending", "Members that this coordinator sends a checkpoint to.",
	"replica_rebuild_sent_bytes", "Bytes sent of the checkpoints that are on their way; each is about replica_used_bytes, less what the member has.",
	"replica_scrub_left_pages", "Damaged pages that the last scrub could not mend.",
), []metric.Def{
	counter("replica_sessions_opened_total", "Sessions ever opened."),
	counter("replica_elections_won_total", "Terms that this replica has led since the start."),
	counter("replica_journal_written_bytes_total", "Bytes written to the journal since the start."),
	counter("replica_recalls_total", "Questions to sessions to give up leases."),
	counter("replica_evictions_total", "Sessions ended because they were silent for too long."),
	counter("replica_request_failures_total", "Requests of clients answered with a failure, by its kind; clients repeat most of them.", "failure"),
	counter("replica_scrub_rounds_total", "Complete scrubs since the start."),
	counter("replica_scrub_read_bytes_total", "Bytes of contents compared with their checksums since the start."),
	counter("replica_scrub_damaged_pages_total", "Damaged pages found since the start, by scrubs and by reads."),
	counter("replica_scrub_mended_pages_total", "Damaged pages mended from other replicas since the start."),
	counter("replica_scrub_differing_ranges_total", "Ranges of records on which the replicas did not agree since the start."),
	histogram("replica_request_duration_seconds", "From a client's request to its answer, by class: mutation or query.", metric.Operations, "class"),
	histogram("replica_commit_duration_seconds", "From the proposal of a batch to its commit by a quorum, at the coordinator.", metric.Operations),
	histogram("replica_apply_duration_seconds", "How long committed batches took to be applied to the files.", metric.Operations),
	histogram("replica_journal_write_duration_seconds", "How long writes of the journal took, with the sync.", metric.Disk),
	histogram("replica_checkpoint_duration_seconds", "How long checkpoints took.", metric.Slow),
	{Name: "credential_expiry_timestamp_seconds", Kind: metric.Gauge, Labels: []string{"volume", "replica", "credential"},
		Help: "When the replica's certificates expire, in seconds since 1970, by credential: server or peer."},
}...)}

// gauges are rows without labels of their own: names and helps in turn.
func gauges(texts ...string) (defs []metric.Def) {
	for i := 0; i < len(texts); i += 2 {
		defs = append(defs, metric.Def{Name: texts[i], Kind: metric.Gauge, Help: texts[i+1], Labels: ofReplica()})
	}
	return defs
}

func counter(name, help string, labels ...string) metric.Def {
	return metric.Def{Name: name, Kind: metric.Counter, Help: help, Labels: append(ofReplica(), labels...)}
}

func histogram(name, help string, buckets []float64, labels ...string) metric.Def {
	return metric.Def{Name: name, Kind: metric.Histogram, Help: help, Buckets: buckets, Labels: append(ofReplica(), labels...)}
}

func ofReplica() []string { return []string{"volume", "replica"} }
