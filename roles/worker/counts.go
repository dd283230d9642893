package worker

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tak-os.org/tak-replicated/fusefs/coord"
	"tak-os.org/tak-replicated/fusefs/fsop"
	"tak-os.org/tak-replicated/raftlog"
)

// counts is what a replica counts while it works. Counting allocates nothing and
// takes no lock.
type counts struct {
	elections, recalls, evictions, journalBytes prometheus.Counter
	failures                                    [fsop.Malformed + 1]prometheus.Counter
	mutations, queries                          prometheus.Observer
	commits, applies, journal, checkpoints      prometheus.Observer
	collectors                                  []prometheus.Collector
}

var (
	_ raftlog.Observer = (*counts)(nil)
	_ coord.Observer   = logged{}
)

func newCounts(labels prometheus.Labels) *counts {
	c := &counts{}
	counter := func(name string) *prometheus.CounterVec {
		v := Metrics.Get(name).Counters(labels)
		c.collectors = append(c.collectors, v)
		return v
	}
	histogram := func(name string) *prometheus.HistogramVec {
		v := Metrics.Get(name).Histograms(labels)
		c.collectors = append(c.collectors, v)
		return v
	}
	c.elections = counter("replica_elections_won_total").WithLabelValues()
	c.recalls = counter("replica_recalls_total").WithLabelValues()
	c.evictions = counter("replica_evictions_total").WithLabelValues()
	c.journalBytes = counter("replica_journal_written_bytes_total").WithLabelValues()
	failures := counter("replica_request_failures_total")
	for code := fsop.NotCoordinator; code <= fsop.Malformed; code++ {
		c.failures[code] = failures.WithLabelValues(strings.ReplaceAll(code.String(), " ", "_"))
	}
	requests := histogram("replica_request_duration_seconds")
	c.mutations, c.queries = requests.WithLabelValues("mutation"), requests.WithLabelValues("query")
	c.commits = histogram("replica_commit_duration_seconds").WithLabelValues()
	c.applies = histogram("replica_apply_duration_seconds").WithLabelValues()
	c.journal = histogram("replica_journal_write_duration_seconds").WithLabelValues()
	c.checkpoints = histogram("replica_checkpoint_duration_seconds").WithLabelValues()
	return c
}

func (c *counts) all() []prometheus.Collector { return c.collectors }

// JournalWritten implements raftlog.Observer.
func (c *counts) JournalWritten(took time.Duration, bytes int64) {
	c.journal.Observe(took.Seconds())
	c.journalBytes.Add(float64(bytes))
}

// Committed implements raftlog.Observer.
func (c *counts) Committed(took time.Duration) { c.commits.Observe(took.Seconds()) }

// Elected implements raftlog.Observer.
func (c *counts) Elected() { c.elections.Inc() }

// logged gives counts the methods that a coordinator needs.
type logged struct{ *counts }

// Answered implements coord.Observer.
func (c logged) Answered(mutation bool, took time.Duration) {
	if mutation {
		c.mutations.Observe(took.Seconds())
		return
	}
	c.queries.Observe(took.Seconds())
}

// Refused implements coord.Observer.
func (c logged) Refused(code fsop.Code) {
	if int(code) < len(c.failures) && c.failures[code] != nil {
		c.failures[code].Inc()
	}
}

// Recalled implements coord.Observer.
func (c logged) Recalled() { c.recalls.Inc() }

// Evicted implements coord.Observer.
func (c logged) Evicted() { c.evictions.Inc() }
