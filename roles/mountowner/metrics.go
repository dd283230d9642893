package mountowner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tak-os.org/tak-replicated/fusefs/client"
)

// metrics reads the mounts' state when it is asked.
type metrics struct {
	owner  *Owner
	gauges []*prometheus.Desc
	expire *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

// sums are gauges of a volume's mounts taken together.
var sums = []string{
	"mounts", "mounts_attached", "mounts_resumed",
	"client_mutations", "client_mutations_limit", "client_queries",
	"client_write_behind_operations", "client_write_behind_operations_limit", "client_write_behind_bytes", "client_write_behind_limit_bytes",
	"client_cached_inodes", "client_cached_bytes",
}

// ofSession are a session's part of sums, in the same order.
func ofSession(st client.Stats) []int {
	return []int{
		st.Mutations, st.MutationsMost, st.Queries,
		st.AheadOps, st.AheadOpsMost, st.AheadBytes, st.AheadBytesMost,
		st.CachedInodes, st.CachedBytes,
	}
}

func newMetrics(o *Owner) *metrics {
	m := &metrics{owner: o, expire: Metrics.Get("client_credential_expiry_timestamp_seconds").Desc(nil)}
	for _, name := range sums {
		m.gauges = append(m.gauges, Metrics.Get(name).Desc(nil))
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range m.gauges {
		ch <- d
	}
	ch <- m.expire
}

// sum is what the mounts of one volume have together, in the order of sums.
type sum struct {
	values []float64
	expiry map[string]time.Time
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	byVolume := map[string]*sum{}
	m.owner.mu.Lock()
	for _, mt := range m.owner.mu.mounts {
		s := byVolume[mt.spec.Volume]
		if s == nil {
			s = &sum{values: make([]float64, len(sums)), expiry: map[string]time.Time{}}
			byVolume[mt.spec.Volume] = s
		}
		s.add(mt)
	}
	m.owner.mu.Unlock()
	for volume, s := range byVolume {
		for i, d := range m.gauges {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, s.values[i], volume)
		}
		for what, at := range s.expiry {
			ch <- prometheus.MustNewConstMetric(m.expire, prometheus.GaugeValue, float64(at.Unix()), volume, what)
		}
	}
}

func (s *sum) add(m *mount) {
	s.values[0]++
	if k := m.kernel.Load(); k != nil && k.Resumed() {
		s.values[2]++
	}
	if session := m.session.Load(); session != nil {
		if session.Status().Coordinator != 0 {
			s.values[1]++
		}
		for i, n := range ofSession(session.Stats()) {
			s.values[3+i] += float64(n)
		}
	}
	if c := m.creds.Load(); c != nil {
		s.expires("certificate", c.NotAfter())
		s.expires("token", c.TokenExpires())
	}
}

// expires keeps the first expiry of a kind.
func (s *sum) expires(what string, at time.Time) {
	if old, ok := s.expiry[what]; !at.IsZero() && (!ok || at.Before(old)) {
		s.expiry[what] = at
	}
}
