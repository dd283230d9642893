package worker

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/tree"
	"tak-os.org/tak-replicated/raftlog"
)

// metrics are one replica's: what is counted while it works, and what is read
// when somebody asks.
type metrics struct {
	r      *replica
	gauges []gauge
	counts *counts
	expiry func() map[string]time.Time
	expire *prometheus.Desc
}

type gauge struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	value func(*scene) float64
}

// scene is a replica's state at one moment.
type scene struct {
	Report
	log        raftlog.Status
	coord      coord.Stats
	checkpoint tree.CheckpointInfo
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(r *replica, c *counts, expiry func() map[string]time.Time) *metrics {
	labels := r.cfg.labels()
	m := &metrics{r: r, counts: c, expiry: expiry, expire: Metrics.Get("credential_expiry_timestamp_seconds").Desc(labels)}
	for _, v := range values {
		d := Metrics.Get(v.name)
		m.gauges = append(m.gauges, gauge{d.Desc(labels), d.Type(), v.value})
	}
	return m
}

func (c *Config) labels() prometheus.Labels {
	return prometheus.Labels{"volume": c.Volume, "replica": c.Replica}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range m.gauges {
		ch <- g.desc
	}
	ch <- m.expire
	for _, c := range m.counts.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	s := scene{Report: m.r.report(), log: m.r.group.Status(), coord: m.r.coord.Stats()}
	s.checkpoint, _ = m.r.tree.NewestCheckpoint() // zeroes when it is closed
	for _, g := range m.gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, g.kind, g.value(&s))
	}
	for what, at := range m.expiry() {
		ch <- prometheus.MustNewConstMetric(m.expire, prometheus.GaugeValue, float64(at.Unix()), what)
	}
	for _, c := range m.counts.all() {
		c.Collect(ch)
	}
}

// values are the metrics that are read when they are asked for.
var values = []struct {
	name  string
	value func(*scene) float64
}{
	{"replica_coordinator", func(s *scene) float64 { return truth(s.Role == "coordinator") }},
	{"replica_coordinator_known", func(s *scene) float64 { return truth(s.Coordinator != 0) }},
	{"replica_serving", func(s *scene) float64 { return truth(s.Serving) }},
	{"replica_start_timestamp_seconds", func(s *scene) float64 { return seconds(s.Started) }},
	{"replica_term", func(s *scene) float64 { return float64(s.Term) }},
	{"replica_commit_index", func(s *scene) float64 { return float64(s.Commit) }},
	{"replica_applied_index", func(s *scene) float64 { return float64(s.Applied) }},
	{"replica_apply_lag_entries", func(s *scene) float64 { return float64(s.Commit - min(s.Commit, s.Applied)) }},
	{"replica_member_lag_entries_max", func(s *scene) float64 {
		var lag uint64
		for _, m := range s.Members {
			lag = max(lag, m.Lag)
		}
		return float64(lag)
	}},
	{"replica_members", func(s *scene) float64 { return float64(len(s.Members)) }},
	{"replica_members_active", func(s *scene) float64 {
		n := 0
		for _, m := range s.Members {
			if m.Active {
				n++
			}
		}
		return float64(n)
	}},
	{"replica_journal_bytes", func(s *scene) float64 { return float64(s.Journal.Bytes) }},
	{"replica_journal_limit_bytes", func(s *scene) float64 { return float64(s.log.JournalMost) }},
	{"replica_journal_entries", func(s *scene) float64 { return float64(s.Journal.Last + 1 - min(s.Journal.Last+1, s.Journal.First)) }},
	{"replica_checkpoint_index", func(s *scene) float64 { return float64(s.Checkpoint) }},
	{"replica_checkpoint_timestamp_seconds", func(s *scene) float64 { return seconds(s.checkpoint.Named) }},
	{"replica_checkpoint_metadata_bytes", func(s *scene) float64 { return float64(s.checkpoint.MetadataBytes) }},
	{"replica_proposals", func(s *scene) float64 { return float64(s.log.Proposals) }},
	{"replica_proposals_limit", func(s *scene) float64 { return float64(s.log.ProposalsMost) }},
	{"replica_proposal_bytes", func(s *scene) float64 { return float64(s.log.ProposalBytes) }},
	{"replica_proposal_limit_bytes", func(s *scene) float64 { return float64(s.log.ProposalBytesMost) }},
	{"replica_sessions", func(s *scene) float64 { return float64(len(s.Sessions)) }},
	{"replica_sessions_opened_total", func(s *scene) float64 { return float64(s.Opened) }},
	{"replica_sessions_attached", func(s *scene) float64 { return float64(s.coord.Attached) }},
	{"replica_leases", func(s *scene) float64 { return float64(s.coord.Leases) }},
	{"replica_mutations_waiting", func(s *scene) float64 { return float64(s.coord.Waiting) }},
	{"replica_mutations_in_log", func(s *scene) float64 { return float64(s.coord.Unlanded) }},
	{"replica_entries_in_log", func(s *scene) float64 { return float64(s.coord.Proposed) }},
	{"replica_entries_in_log_limit", func(s *scene) float64 { return float64(s.coord.ProposedMost) }},
	{"replica_lock_waits", func(s *scene) float64 { return float64(s.coord.Parked) }},
	{"replica_connections", func(s *scene) float64 { return float64(s.Conns) }},
	{"replica_used_bytes", func(s *scene) float64 { return float64(s.Space.UsedBytes) }},
	{"replica_used_inodes", func(s *scene) float64 { return float64(s.Space.UsedInodes) }},
	{"replica_quota_bytes", func(s *scene) float64 { return float64(s.Space.LimitBytes) }},
	{"replica_quota_inodes", func(s *scene) float64 { return float64(s.Space.LimitInodes) }},
	{"replica_disk_bytes", func(s *scene) float64 { return float64(s.Space.DiskBytes) }},
	{"replica_disk_free_bytes", func(s *scene) float64 { return float64(s.Space.DiskFree) }},
	{"replica_disk_reserve_bytes", func(s *scene) float64 { return float64(s.Space.Reserve) }},
	{"replica_rebuild_receiving", func(s *scene) float64 { return truth(s.Rebuild != nil) }},
	{"replica_rebuild_received_bytes", func(s *scene) float64 {
		if s.Rebuild == nil {
			return 0
		}
		return float64(s.Rebuild.Bytes)
	}},
	{"replica_rebuilds_sending", func(s *scene) float64 {
		n := 0
		for _, m := range s.Members {
			if m.Rebuild != nil {
				n++
			}
		}
		return float64(n)
	}},
	{"replica_rebuild_sent_bytes", func(s *scene) float64 {
		var n uint64
		for _, m := range s.Members {
			if m.Rebuild != nil {
				n += m.Rebuild.Bytes
			}
		}
		return float64(n)
	}},
	{"replica_scrub_rounds_total", func(s *scene) float64 { return float64(s.Scrub.Rounds) }},
	{"replica_scrub_read_bytes_total", func(s *scene) float64 { return float64(s.Scrub.Bytes) }},
	{"replica_scrub_damaged_pages_total", func(s *scene) float64 { return float64(s.Scrub.Found) }},
	{"replica_scrub_mended_pages_total", func(s *scene) float64 { return float64(s.Scrub.Mended) }},
	{"replica_scrub_left_pages", func(s *scene) float64 { return float64(s.Scrub.Left) }},
	{"replica_scrub_differing_ranges_total", func(s *scene) float64 { return float64(s.Scrub.Differs) }},
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds is a time as Prometheus wants it, 0 for none.
func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1000
}
