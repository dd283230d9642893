package local

import (
	"github.com/prometheus/client_golang/prometheus"

	"tak-os.org/tak-replicated/csi/local"
)

var (
	volumesDesc  = prometheus.NewDesc("tak_local_volumes", "Volumes on this node, by state.", []string{"state"}, nil)
	capacityDesc = prometheus.NewDesc("tak_local_requested_bytes", "Sum of the sizes that the volumes were asked for.", nil, nil)
	freeDesc     = prometheus.NewDesc("tak_local_free_bytes", "What is free in the volumes' filesystem.", nil, nil)
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
	gauge(capacityDesc, float64(s.RequestedBytes))
	gauge(freeDesc, float64(s.FreeBytes))
}
