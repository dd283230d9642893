package worker

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics reads a replica's state when it is asked.
type metrics struct {
	r      *replica
	gauges []gauge
}

type gauge struct {
	desc  *prometheus.Desc
	value func(*Report) float64
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(r *replica) *metrics {
	labels := prometheus.Labels{"volume": r.cfg.Volume, "replica": r.cfg.Replica}
	m := &metrics{r: r}
	add := func(name, help string, value func(*Report) float64) {
		m.gauges = append(m.gauges, gauge{prometheus.NewDesc("tak_replica_"+name, help, nil, labels), value})
	}
	add("coordinator", "1 when this replica's worker is the coordinator.", func(r *Report) float64 { return truth(r.Role == "coordinator") })
	add("coordinator_known", "1 when the replica knows a coordinator.", func(r *Report) float64 { return truth(r.Coordinator != 0) })
	add("serving", "1 when the replica's state is complete enough to be read.", func(r *Report) float64 { return truth(r.Serving) })
	add("term", "Raft term.", func(r *Report) float64 { return float64(r.Term) })
	add("commit_index", "Log index known to be on a quorum.", func(r *Report) float64 { return float64(r.Commit) })
	add("applied_index", "Log index applied to the replica's files.", func(r *Report) float64 { return float64(r.Applied) })
	add("checkpoint_index", "Log index of the newest checkpoint.", func(r *Report) float64 { return float64(r.Checkpoint) })
	add("journal_bytes", "Disk space of the journal.", func(r *Report) float64 { return float64(r.Journal.Bytes) })
	add("sessions", "Sessions in the log.", func(r *Report) float64 { return float64(len(r.Sessions)) })
	add("connections", "Connections to the replica's port.", func(r *Report) float64 { return float64(r.Conns) })
	add("used_bytes", "Bytes allocated by files.", func(r *Report) float64 { return float64(r.Space.UsedBytes) })
	add("used_inodes", "Inodes in use.", func(r *Report) float64 { return float64(r.Space.UsedInodes) })
	add("disk_bytes", "Size of the replica's disk.", func(r *Report) float64 { return float64(r.Space.DiskBytes) })
	add("disk_free_bytes", "Free space of the replica's disk.", func(r *Report) float64 { return float64(r.Space.DiskFree) })
	add("scrub_rounds", "Complete scrubs since the start.", func(r *Report) float64 { return float64(r.Scrub.Rounds) })
	add("scrub_read_bytes", "Bytes of contents compared with their checksums since the start.", func(r *Report) float64 { return float64(r.Scrub.Bytes) })
	add("scrub_damaged_pages", "Damaged pages found since the start, by scrubs and by reads.", func(r *Report) float64 { return float64(r.Scrub.Found) })
	add("scrub_mended_pages", "Damaged pages mended from other replicas since the start.", func(r *Report) float64 { return float64(r.Scrub.Mended) })
	add("scrub_left_pages", "Damaged pages that the last scrub could not mend.", func(r *Report) float64 { return float64(r.Scrub.Left) })
	add("scrub_differing_ranges", "Ranges of records on which the replicas did not agree since the start.", func(r *Report) float64 { return float64(r.Scrub.Differs) })
	add("members_behind_entries_max", "Entries that the member furthest behind lacks; the coordinator knows.", func(r *Report) float64 {
		var lag uint64
		for _, m := range r.Members {
			lag = max(lag, m.Lag)
		}
		return float64(lag)
	})
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range m.gauges {
		ch <- g.desc
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	rep := m.r.report()
	for _, g := range m.gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(&rep))
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
