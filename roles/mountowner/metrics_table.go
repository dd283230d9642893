package mountowner

import "tak-os.org/tak-replicated/roles/boot/metric"

// Metrics is what a mount owner shows of its mounts, volume by volume.
var Metrics = metric.Table{Role: "mount-owner, dev", Defs: []metric.Def{
	ofVolume("mounts", metric.Gauge, "Mounts of this process."),
	ofVolume("mounts_attached", metric.Gauge, "Mounts whose session is attached to the coordinator."),
	ofVolume("mounts_resumed", metric.Gauge, "Mounts that this process has taken over from another."),
	ofVolume("mount_sessions_lost_total", metric.Counter, "Sessions that ended under their mount."),
	ofVolume("client_mutations", metric.Gauge, "Mutations that were sent to the log, and whose answer somebody waits for."),
	ofVolume("client_mutations_limit", metric.Gauge, "Bound of client_mutations; more wait in the process."),
	ofVolume("client_queries", metric.Gauge, "Queries that were asked of a coordinator and have no answer yet."),
	ofVolume("client_write_behind_operations", metric.Gauge, "Operations that were answered and are not in the log yet; fsync waits for them."),
	ofVolume("client_write_behind_operations_limit", metric.Gauge, "Bound of client_write_behind_operations (--write-behind-ops); when it is reached, operations wait."),
	ofVolume("client_write_behind_bytes", metric.Gauge, "Their bytes."),
	ofVolume("client_write_behind_limit_bytes", metric.Gauge, "Bound of client_write_behind_bytes (--write-behind-bytes)."),
	ofVolume("client_cached_inodes", metric.Gauge, "Inodes of which the sessions' memory knows something."),
	ofVolume("client_cached_bytes", metric.Gauge, "Contents of small files in the sessions' memory."),
	ofVolume("client_memory_answers_total", metric.Counter, "Queries answered from memory, under leases."),
	ofVolume("client_near_reads_total", metric.Counter, "Reads for which the replica on this node was asked, by result: answered, or left to the coordinator.", "result"),
	ofVolume("client_attaches_total", metric.Counter, "Times that a coordinator has taken a session in."),
	ofVolume("client_call_failures_total", metric.Counter, "Calls that ended without a reply, which the kernel is told as EIO, by failure.", "failure"),
	{Name: "client_call_duration_seconds", Kind: metric.Histogram, Buckets: metric.Operations, Labels: []string{"volume", "class"},
		Help: "From a call to its answer, over as many coordinators as it took, by class: mutation or query."},
	{Name: "kernel_request_duration_seconds", Kind: metric.Histogram, Buckets: metric.Operations, Labels: []string{"volume", "class"},
		Help: "From reading a request of the kernel to its answer, by class."},
	ofVolume("kernel_request_errors_total", metric.Counter, "Requests of the kernel answered with an error that is no ordinary outcome.", "error"),
	ofVolume("client_credential_expiry_timestamp_seconds", metric.Gauge,
		"When the mounts' credentials expire, the first of them, in seconds since 1970, by credential: certificate or token.", "credential"),
}}

func ofVolume(name string, kind metric.Kind, help string, labels ...string) metric.Def {
	return metric.Def{Name: name, Kind: kind, Help: help, Labels: append([]string{"volume"}, labels...)}
}
