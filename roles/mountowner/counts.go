package mountowner

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/kernel"
)

// tallies count what mounts do, by volume. A volume that is not mounted any more
// keeps its counts while the process lives: a counter that goes and comes again
// would look like a restart.
type tallies struct {
	kernel, calls                                  *prometheus.HistogramVec
	errors, failures, memory, near, attaches, lost *prometheus.CounterVec
}

func newTallies() *tallies {
	return &tallies{
		kernel: Metrics.Get("kernel_request_duration_seconds").Histograms(nil), calls: Metrics.Get("client_call_duration_seconds").Histograms(nil),
		errors: Metrics.Get("kernel_request_errors_total").Counters(nil), failures: Metrics.Get("client_call_failures_total").Counters(nil),
		memory: Metrics.Get("client_memory_answers_total").Counters(nil), near: Metrics.Get("client_near_reads_total").Counters(nil), attaches: Metrics.Get("client_attaches_total").Counters(nil),
		lost: Metrics.Get("mount_sessions_lost_total").Counters(nil),
	}
}

func (t *tallies) all() []prometheus.Collector {
	return []prometheus.Collector{t.kernel, t.calls, t.errors, t.failures, t.memory, t.near, t.attaches, t.lost}
}

// tally counts for one mount. Counting allocates nothing and takes no lock.
type tally struct {
	requests               [kernel.Classes]prometheus.Observer
	eio, enospc, other     prometheus.Counter
	mutations, queries     prometheus.Observer
	memory, attaches, lost prometheus.Counter
	near, notNear          prometheus.Counter
	failures               [fsop.Malformed + 1]prometheus.Counter
}

var (
	_ kernel.Observer = (*tally)(nil)
	_ client.Observer = (*tally)(nil)
)

func (t *tallies) of(volume string) *tally {
	y := &tally{
		eio: t.errors.WithLabelValues(volume, "EIO"), enospc: t.errors.WithLabelValues(volume, "ENOSPC"), other: t.errors.WithLabelValues(volume, "other"),
		mutations: t.calls.WithLabelValues(volume, "mutation"), queries: t.calls.WithLabelValues(volume, "query"),
		near: t.near.WithLabelValues(volume, "answered"), notNear: t.near.WithLabelValues(volume, "left_to_coordinator"),
		memory: t.memory.WithLabelValues(volume), attaches: t.attaches.WithLabelValues(volume), lost: t.lost.WithLabelValues(volume),
	}
	for c := range kernel.Class(kernel.Classes) {
		y.requests[c] = t.kernel.WithLabelValues(volume, c.String())
	}
	for code := fsop.NotCoordinator; code <= fsop.Malformed; code++ {
		y.failures[code] = t.failures.WithLabelValues(volume, strings.ReplaceAll(code.String(), " ", "_"))
	}
	return y
}

// Answered implements kernel.Observer.
func (y *tally) Answered(class kernel.Class, took time.Duration, errno fsop.Errno) {
	y.requests[class].Observe(took.Seconds())
	switch errno {
	case fsop.EIO:
		y.eio.Inc()
	case fsop.ENOSPC, fsop.EDQUOT:
		y.enospc.Inc()
	case fsop.ESTALE, fsop.ENOLCK, fsop.ENOMEM:
		y.other.Inc()
	}
}

// FromMemory implements client.Observer.
func (y *tally) FromMemory() { y.memory.Inc() }

// Called implements client.Observer.
func (y *tally) Called(mutation bool, took time.Duration, failure error) {
	if mutation {
		y.mutations.Observe(took.Seconds())
	} else {
		y.queries.Observe(took.Seconds())
	}
	if failure == nil {
		return
	}
	if code := fsop.CodeOf(failure); int(code) < len(y.failures) && y.failures[code] != nil {
		y.failures[code].Inc()
	}
}

// ReadNear implements client.Observer.
func (y *tally) ReadNear(answered bool) {
	if answered {
		y.near.Inc()
	} else {
		y.notNear.Inc()
	}
}

// Attached implements client.Observer.
func (y *tally) Attached() { y.attaches.Inc() }

// Lost implements client.Observer.
func (y *tally) Lost() { y.lost.Inc() }
