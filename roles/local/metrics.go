package local

import (
	"github.com/prometheus/client_golang/prometheus"

	"tak-os.org/tak-replicated/csi/local"
	"tak-os.org/tak-replicated/roles/boot/metric"
)

// Metrics is what the local driver shows.
var Metrics = metric.Table{Role: "local", Defs: []metric.Def{
	{Name: "local_volumes", Kind: metric.Gauge, Labels: []string{"state"}, Help: "Volumes on this node, by state: free, acquired, deleting, or unreadable (records and folders that the log tells of)."},
	{Name: "local_requested_bytes", Kind: metric.Gauge, Help: "Sum of the sizes that the volumes were asked for."},
	{Name: "local_free_bytes", Kind: metric.Gauge, Help: "What is free in the volumes' filesystem."},
}}

var (
	volumesDesc  = Metrics.Get("local_volumes").Desc(nil)
	capacityDesc = Metrics.Get("local_requested_bytes").Desc(nil)
	freeDesc     = Metrics.Get("local_free_bytes").Desc(nil)
)

// metrics counts volumes when it is asked.
type metrics struct{ driver *local.Driver }

var _ prometheus.Collector = metrics{}

func (m metrics) Describe(to chan<- *prometheus.Desc) {
	to <- volumesDesc
	to <- capacityDesc
	to <- freeDesc
}

func (m metrics) Collect(to chan<- prometheus.Metric) {
	s, err := m.driver.Summary()
	if err != nil {
		to <- prometheus.NewInvalidMetric(volumesDesc, err)
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(volumesDesc, float64(s.Free), "free")
	gauge(volumesDesc, float64(s.Acquired), "acquired")
	gauge(volumesDesc, float64(s.Deleting), "deleting")
	gauge(volumesDesc, float64(s.Unreadable), "unreadable")
	gauge(capacityDesc, float64(s.RequestedBytes))
	gauge(freeDesc, float64(s.FreeBytes))
}
