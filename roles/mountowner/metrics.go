package mountowner

import "github.com/prometheus/client_golang/prometheus"

// metrics reads the mounts' state when it is asked.
type metrics struct {
	owner                              *Owner
	mounts, attached, inFlight, lostBy *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(o *Owner) *metrics {
	labels := []string{"volume", "mountpoint"}
	return &metrics{
		owner:    o,
		mounts:   prometheus.NewDesc("tak_mounts", "Mounts of this process.", nil, nil),
		attached: prometheus.NewDesc("tak_mount_attached", "1 when the mount's session is attached to the coordinator.", labels, nil),
		inFlight: prometheus.NewDesc("tak_mount_operations_in_flight", "Operations without an answer.", labels, nil),
		lostBy:   prometheus.NewDesc("tak_mount_sessions_lost_total", "Sessions that ended under the mount.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.mounts, m.attached, m.inFlight, m.lostBy} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	list := m.owner.Mounts()
	ch <- prometheus.MustNewConstMetric(m.mounts, prometheus.GaugeValue, float64(len(list)))
	for _, s := range list {
		attached := 0.0
		if s.Session.Coordinator != 0 {
			attached = 1
		}
		labels := []string{s.Volume, s.Mountpoint}
		ch <- prometheus.MustNewConstMetric(m.attached, prometheus.GaugeValue, attached, labels...)
		ch <- prometheus.MustNewConstMetric(m.inFlight, prometheus.GaugeValue, float64(s.Session.InFlight), labels...)
		ch <- prometheus.MustNewConstMetric(m.lostBy, prometheus.CounterValue, float64(s.Session.Lost), labels...)
	}
}
