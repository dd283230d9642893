package mountowner

import (
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tak-os.org/tak-replicated/fusefs/client"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/fusefs/kernel"
)

// talliesKept is for how long a volume's counts are shown after its last unmount:
// whoever asks for them now and then still gets the last ones. One that comes back
// later begins at 0, as after a restart of this process.
const talliesKept = time.Hour

// tallies count what mounts do, by volume, and forget those that have not been
// mounted for a while.
type tallies struct {
	kernel, calls                                  *prometheus.HistogramVec
	errors, failures, memory, near, attaches, lost *prometheus.CounterVec

	now func() time.Time
	mu  struct {
		sync.Mutex
		volumes map[string]*tallied
	}
}

// tallied is a volume whose counts are shown.
type tallied struct {
	mounts int
	left   time.Time // by the last of them, if there is none
}

var _ prometheus.Collector = (*tallies)(nil)

func newTallies() *tallies {
	t := &tallies{
		kernel: Metrics.Get("kernel_request_duration_seconds").Histograms(nil), calls: Metrics.Get("client_call_duration_seconds").Histograms(nil),
		errors: Metrics.Get("kernel_request_errors_total").Counters(nil), failures: Metrics.Get("client_call_failures_total").Counters(nil),
		memory: Metrics.Get("client_memory_answers_total").Counters(nil), near: Metrics.Get("client_near_reads_total").Counters(nil), attaches: Metrics.Get("client_attaches_total").Counters(nil),
		lost: Metrics.Get("mount_sessions_lost_total").Counters(nil), now: time.Now,
	}
	t.mu.volumes = map[string]*tallied{}
	return t
}

// vec is a family of counts, each with a volume.
type vec interface {
	prometheus.Collector
	DeletePartialMatch(prometheus.Labels) int
}

func (t *tallies) all() []vec {
	return []vec{t.kernel, t.calls, t.errors, t.failures, t.memory, t.near, t.attaches, t.lost}
}

// Describe implements prometheus.Collector.
func (t *tallies) Describe(ch chan<- *prometheus.Desc) {
	for _, v := range t.all() {
		v.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (t *tallies) Collect(ch chan<- prometheus.Metric) {
	t.mu.Lock()
	t.sweep()
	t.mu.Unlock()
	for _, v := range t.all() {
		v.Collect(ch)
	}
}

// leave follows the end of a mount that of has counted.
func (t *tallies) leave(volume string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.mu.volumes[volume]
	n.mounts--
	n.left = t.now()
}

// sweep forgets volumes that have not been mounted for a while; the lock is held.
// It runs when somebody looks or mounts, so that nothing has to run for it.
func (t *tallies) sweep() {
	for volume, n := range t.mu.volumes {
		if n.mounts > 0 || t.now().Sub(n.left) < talliesKept {
			continue
		}
		for _, v := range t.all() {
			v.DeletePartialMatch(prometheus.Labels{"volume": volume})
		}
		delete(t.mu.volumes, volume)
	}
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

// of returns the counts of a mount, which leave ends.
func (t *tallies) of(volume string) *tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep()
	if t.mu.volumes[volume] == nil {
		t.mu.volumes[volume] = &tallied{}
	}
	t.mu.volumes[volume].mounts++
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
	case fsop.ENOSPC:
		y.enospc.Inc()
	case fsop.ESTALE, fsop.ENOLCK, fsop.Errno(syscall.ENFILE):
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
